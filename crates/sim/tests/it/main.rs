//! Unmodified programs run on the library in place of libcuda.

mod c_program;
mod client;
mod command;
mod export_tables;
mod runtime;
mod symbols;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with `libcuda.so.1` and `libcuda.so`.
fn library() -> TempDir {
    let built = env!("CARGO_BIN_EXE_retrograph-sim");
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy(built, folder.path().join("libcuda.so.1")).expect("the library can be copied");
    std::os::unix::fs::symlink("libcuda.so.1", folder.path().join("libcuda.so"))
        .expect("links can be made");
    folder
}

/// The folder of cuda.h. Without it, reports the skip and returns `None`.
fn include() -> Option<PathBuf> {
    let named = std::env::var_os("RETROGRAPH_CUDA_13").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        root.join(target).join("toolchain/runtime-13.0/nvidia/cu13/include")
    });
    if folder.join("cuda.h").is_file() {
        return Some(folder);
    }
    let line = "no cuda.h: set RETROGRAPH_CUDA_13, or run `cargo xtask toolchain`";
    assert!(std::env::var_os("RETROGRAPH_REQUIRE_ABI_TOOLS").is_none(), "{line}");
    // Writes to the stream directly, since the harness captures the output of passing tests.
    let line = format!("skipped: no C program is built: {line}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
    None
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs a command. Panics with its output if it fails.
fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{command:?} failed: {}", text(&output));
    output
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}
