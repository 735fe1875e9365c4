//! The rules of the tree that no compiler checks.

mod api;
mod jobs;
mod names;
mod pages;
mod parameters;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use self::names::RetiredNames;
use crate::circles;
use crate::packages;
use crate::workspace::{self, command, output};

/// The allowed dependencies of each package, as in the diagram of ARCHITECTURE.md.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("retrograph-driver-sys", &[]),
    ("retrograph-nccl-sys", &["retrograph-driver-sys"]),
    (
        "retrograph-nccl-sim",
        &["retrograph-driver-sim", "retrograph-driver-sys", "retrograph-nccl-sys"],
    ),
    ("retrograph-abi-check", &["retrograph-driver-sys", "retrograph-nccl-sys"]),
    ("retrograph-ptx", &[]),
    ("retrograph-ptx-exec", &["retrograph-ptx"]),
    ("retrograph-driver-sim", &["retrograph-driver-sys", "retrograph-ptx", "retrograph-ptx-exec"]),
    ("retrograph-sim", &["retrograph-driver-sim", "retrograph-driver-sys"]),
    ("retrograph-kernel-abi", &["retrograph-ptx"]),
    ("retrograph-kernels-ptx", &["retrograph-ptx", "retrograph-kernel-abi"]),
    (
        "retrograph-kernels",
        &["retrograph-ptx", "retrograph-kernel-abi", "retrograph-kernels-ptx (build)"],
    ),
    (
        "retrograph-driver",
        &["retrograph-driver-sys", "retrograph-ptx", "retrograph-driver-sim (optional)"],
    ),
    ("retrograph-bundle", &["retrograph-ptx"]),
    ("retrograph-build", &["retrograph-bundle", "retrograph-ptx"]),
    ("retrograph-test-support", &["retrograph-driver", "retrograph-driver-sim"]),
    (
        "retrograph-runtime",
        &[
            "retrograph-bundle",
            "retrograph-driver",
            "retrograph-driver-sys",
            "retrograph-kernel-abi",
            "retrograph-kernels (optional)",
            "retrograph-nccl-sys",
            "retrograph-nccl-sim (optional)",
            "retrograph-ptx",
        ],
    ),
    ("retrograph-finetune", &["retrograph-runtime", "retrograph-kernels"]),
    ("retrograph", &["retrograph-finetune", "retrograph-runtime"]),
    (
        "retrograph-conformance",
        &["retrograph-driver-sys", "retrograph-driver-sim", "retrograph-ptx"],
    ),
    (
        "xtask",
        &[
            "retrograph-ptx",
            "retrograph-kernels-ptx",
            "retrograph-kernels",
            "retrograph-runtime",
            "retrograph-finetune",
            "retrograph-conformance",
        ],
    ),
];

const MAX_LINES: usize = 600;
const MAX_COLUMNS: usize = 100;

pub(crate) fn run() -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    dependencies(&mut complaints)?;
    complaints.extend(packages::published()?.iter().flat_map(packages::complaints));
    circles::check(&mut complaints)?;
    let files = tracked_files()?;
    let names = names::RetiredNames::load()?;
    for path in &files {
        file(path, &names, &mut complaints)?;
    }
    let root = workspace::root();
    let relative: Vec<_> = files.iter().filter_map(|path| path.strip_prefix(root).ok()).collect();
    pages::check(root, &relative, &mut complaints);
    jobs::check(root, &mut complaints);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("tidy: {} complaints", complaints.len());
    }
    println!("tidy: {} files, {} packages, all in order", files.len(), MAY_DEPEND_ON.len());
    Ok(())
}

fn dependencies(complaints: &mut Vec<String>) -> anyhow::Result<()> {
    let text = output(command("cargo", &["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    for package in packages {
        let name = package["name"].as_str().context("a package has no name")?;
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(listed, _)| *listed == name) else {
            complaints.push(format!(
                "{name}: no dependency rule; add one to MAY_DEPEND_ON in xtask/src/tidy.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(entry) = described(dependency) else { continue };
            if !allowed.contains(&entry.as_str()) {
                complaints.push(format!("{name} must not depend on {entry}"));
            }
        }
    }
    Ok(())
}

/// A dependency inside the workspace in the notation of [`MAY_DEPEND_ON`]; `None` for dependencies
/// of tests, which may use any crate.
fn described(dependency: &Value) -> Option<String> {
    let name = dependency["name"].as_str()?;
    if dependency["path"].is_null() || dependency["kind"] == "dev" {
        return None;
    }
    let suffix = match (dependency["kind"].as_str(), dependency["optional"].as_bool()) {
        (Some("build"), _) if name == "retrograph-ptx" => "",
        (Some("build"), _) => " (build)",
        (_, Some(true)) => " (optional)",
        _ => "",
    };
    Some(format!("{name}{suffix}"))
}

fn tracked_files() -> anyhow::Result<Vec<PathBuf>> {
    let list = output(command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    let paths = list.lines().map(|line| workspace::root().join(line));
    Ok(paths.filter(|path| path.is_file()).collect())
}

fn file(path: &Path, names: &RetiredNames, complaints: &mut Vec<String>) -> anyhow::Result<()> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let root = workspace::root();
    let relative = path.strip_prefix(root).unwrap_or(path);
    let name = relative.display();
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    if is_rust {
        names.check(relative, &text, complaints);
        match syn::parse_file(&text) {
            Ok(file) => {
                let found = [api::check(&file), parameters::check(&file)].into_iter().flatten();
                complaints.extend(found.map(|(line, text)| format!("{name}:{line}: {text}")));
            }
            Err(error) => complaints.push(format!("{name}: {error}")),
        }
        if !text.starts_with("//!") {
            complaints.push(format!("{name}: has no //! line at the top; state its content"));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES {
            complaints.push(format!("{name}: {lines} lines, at most {MAX_LINES}; split it"));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > MAX_COLUMNS {
                complaints.push(format!("{name}:{}: over {MAX_COLUMNS} columns", number + 1));
            }
        }
    }
    let machine_paths =
        [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|parts| parts.concat());
    if machine_paths.iter().any(|part| text.contains(part)) {
        complaints.push(format!("{name}: contains an absolute path of one machine; remove it"));
    }
    Ok(())
}
