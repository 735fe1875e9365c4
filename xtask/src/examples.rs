//! The examples: packages outside the workspace, made to be copied.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use crate::toolchain;
use crate::workspace::{BUILD_PROGRAMS, check, command, profiles, root, target_dir};

/// Checks format and lints of every example, and runs it: programs assert their results.
pub(crate) fn run() -> anyhow::Result<()> {
    let library = library()?;
    let nvcc = toolchain::nvcc()?;
    let profiles = profiles();
    let profiles: Vec<_> = profiles.iter().map(String::as_str).collect();
    for folder in folders()? {
        let step = |arguments: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(arguments).current_dir(&folder).env("CARGO_TARGET_DIR", target_dir());
            command.env("LD_LIBRARY_PATH", &library).env("NVCC", &nvcc);
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            check(command).with_context(|| format!("example {name}"))
        };
        step(&["fmt", "--check"])?;
        let clippy = ["clippy", "--all-targets", "--locked"];
        step(&[&clippy[..], &profiles, &["--", "-D", "warnings"]].concat())?;
        let verb = if folder.join("src/main.rs").is_file() { "run" } else { "test" };
        step(&[&[verb, "--locked"][..], &profiles].concat())?;
    }
    Ok(())
}

/// The folders of the examples, by name.
pub(crate) fn folders() -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root().join("examples"))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut folders = paths?;
    folders.retain(|path| path.join("Cargo.toml").is_file());
    folders.sort();
    Ok(folders)
}

/// Builds the simulator's libcuda.so.1 for programs that load it by name, and returns its folder.
fn library() -> anyhow::Result<PathBuf> {
    check(command("cargo", BUILD_PROGRAMS))?;
    let folder = target_dir().join("libcuda");
    let mut command = Command::new(target_dir().join("debug/retrograph-sim"));
    command.args(["library", "--out"]).arg(&folder);
    check(command)?;
    Ok(folder)
}
