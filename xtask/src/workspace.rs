//! Paths of the workspace, and commands in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace root")
}

/// The build directory, which `CARGO_TARGET_DIR` may move.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Arguments of cargo that build all programs and examples. If all packages are selected, their
/// dependencies have the same features as in tests, so builds are shared with tests.
pub(crate) const BUILD_PROGRAMS: &[&str] =
    &["build", "--workspace", "--bins", "--examples", "--locked"];

/// Flags that give a build in another workspace the profiles of this one, so that it shares
/// dependencies and its build scripts are fast.
pub(crate) fn own_profiles() -> Vec<String> {
    vec!["--config".to_owned(), root().join("Cargo.toml").display().to_string()]
}

/// Like [`own_profiles`], but crates that are hot only in tests are not optimized: compiling them
/// would take longer than running small programs.
pub(crate) fn profiles() -> Vec<String> {
    let slow = ["retrograph-ptx-exec", "regex-automata", "tokenizers"];
    // Many units are compiled in parallel; without optimization they cost nothing else.
    let unoptimized = slow.into_iter().flat_map(|name| {
        ["opt-level=0", "codegen-units=256"].map(|it| format!("profile.dev.package.{name}.{it}"))
    });
    let flags = unoptimized.flat_map(|it| ["--config".to_owned(), it]);
    own_profiles().into_iter().chain(flags).collect()
}

/// A command that runs in the workspace root.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Prints and runs a command that must succeed.
pub(crate) fn check(mut command: Command) -> anyhow::Result<()> {
    let line = describe(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// The standard output of a command that must succeed.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let line = describe(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no UTF-8"))
}

/// A command as a line, for messages.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
