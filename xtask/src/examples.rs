//! The examples: packages outside the workspace, made to be copied.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::toolchain;
use crate::workspace::{check, command, root, target_dir};

/// Checks format and lints of every example, and runs it: programs assert their results. They
/// share one build directory.
pub(crate) fn run() -> anyhow::Result<()> {
    let build = target_dir().join("examples");
    let library = library(&build)?;
    let nvcc = toolchain::nvcc()?;
    for folder in folders()? {
        let step = |arguments: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(arguments).current_dir(&folder).env("CARGO_TARGET_DIR", &build);
            command.env("LD_LIBRARY_PATH", &library).env("NVCC", &nvcc);
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            check(command).with_context(|| format!("example {name}"))
        };
        step(&["fmt", "--check"])?;
        step(&["clippy", "--all-targets", "--locked", "--", "-D", "warnings"])?;
        let verb = if folder.join("src/main.rs").is_file() { "run" } else { "test" };
        step(&[verb, "--locked"])?;
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
/// The kernels of the examples are small: compiling an optimized simulator would take longer.
fn library(build: &Path) -> anyhow::Result<PathBuf> {
    let folder = build.join("libcuda");
    let mut command = command("cargo", &["run", "--locked", "-p", "retrograph-sim"]);
    command.args(["--config", "profile.dev.package.retrograph-driver-sim.opt-level=0"]);
    command.args(["--", "library", "--out"]).arg(&folder);
    command.env("CARGO_TARGET_DIR", build);
    check(command)?;
    Ok(folder)
}
