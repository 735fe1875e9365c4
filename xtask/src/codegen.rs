//! The PTX of every kernel, committed under kernels-ptx/golden for review.
//!
//! There is one file per distinct body: `<image>.ptx` for the oldest SM target, and
//! `<image>.<target>.ptx` for each later target whose body differs from the previous one. The
//! comparison ignores `.version`, `.target` and the `griddepcontrol.wait` at the start of entries.
//!
//! For images too long to read, `<image>.tsv` has per entry the registers, the count of each
//! instruction, and a digest of the text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use sha2::{Digest, Sha256};

use crate::workspace;

/// Maximum lines of an image that is committed as PTX.
const MAX_LINES: usize = 2000;
/// Extensions of committed files.
const EXTENSIONS: [&str; 2] = ["ptx", "tsv"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a committed file is missing, stale or left over.
    #[arg(long)]
    pub(crate) check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let dir = workspace::root().join("kernels-ptx/golden");
    let expected = expected();
    let present = present(&dir)?;
    let stale: Vec<_> = expected.iter().filter(|(k, v)| present.get(*k) != Some(v)).collect();
    let left_over: Vec<_> = present.keys().filter(|name| !expected.contains_key(*name)).collect();
    if arguments.check {
        if !stale.is_empty() || !left_over.is_empty() {
            let names: Vec<_> = stale.iter().map(|(name, _)| name.as_str()).collect();
            bail!(
                "kernels-ptx/golden is not current: stale or missing {names:?}, left over \
                 {left_over:?}; run `cargo xtask codegen` and review the diff"
            );
        }
        println!("codegen: {} golden files are current", expected.len());
        return Ok(());
    }
    fs::create_dir_all(&dir)?;
    for (name, text) in &stale {
        fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    for name in &left_over {
        fs::remove_file(dir.join(name))?;
    }
    println!("codegen: {} written, {} removed", stale.len(), left_over.len());
    Ok(())
}

fn expected() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut last_body = BTreeMap::new();
    for &target in SmTarget::GENERATED {
        for (image, module) in retrograph_kernels_ptx::images(target) {
            let text = module.to_string();
            let body = body(&text);
            let last = last_body.insert(image, body.clone());
            let name = match &last {
                None => image.to_owned(),
                Some(last) if *last != body => format!("{image}.{target}"),
                Some(_) => continue,
            };
            match body.lines().count() <= MAX_LINES {
                true => files.insert(format!("{name}.ptx"), text),
                false => files.insert(format!("{name}.tsv"), summary(&module)),
            };
        }
    }
    files
}

fn body(text: &str) -> String {
    let is_common = |line: &&str| {
        let header = line.starts_with(".version") || line.starts_with(".target");
        header || line.trim() == "griddepcontrol.wait;"
    };
    text.lines().filter(|line| !is_common(line)).collect::<Vec<_>>().join("\n")
}

/// A row per entry: its registers, a digest, and the count of each instruction.
fn summary(module: &Module) -> String {
    let mut rows = String::from("entry\twhat\tcount\n");
    for entry in &module.entries {
        let alone = Module { entries: vec![entry.clone()], ..module.clone() };
        let text = body(&alone.to_string());
        let mut row = |what: &str, count: &dyn std::fmt::Display| {
            writeln!(rows, "{}\t{what}\t{count}", entry.name)
                .expect("writing to a string does not fail");
        };
        let digest: String =
            Sha256::digest(&text)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        row("sha256", &digest);
        row("registers", &Entry::register_count(entry));
        instructions(&text).iter().for_each(|(instruction, count)| row(instruction, count));
    }
    rows
}

/// The count of each instruction in the text of an entry.
fn instructions(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.ends_with(';')).map(str::trim) {
        let words = line.split_whitespace().find(|word| !word.starts_with('@'));
        let Some(instruction) = words.filter(|word| !word.starts_with('.')) else { continue };
        *counts.entry(instruction.trim_end_matches(';')).or_default() += 1;
    }
    counts
}

fn present(dir: &PathBuf) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| EXTENSIONS.iter().any(|known| it == *known)) {
            let name = path.file_name().expect("a directory entry has a name");
            files.insert(name.to_string_lossy().into_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(files)
}
