//! The examples: packages outside the workspace, made to be copied.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::toolchain;
use crate::workspace::{BUILD_PROGRAMS, check, command, profiles, root, target_dir};

/// Checks format and lints of every example, and runs it: programs assert their results.
pub(crate) fn run() -> anyhow::Result<()> {
    check(command("cargo", BUILD_PROGRAMS))?;
    let runner = Runner::new()?;
    for folder in folders()? {
        runner.cargo(&folder, &["fmt", "--check"])?;
        let clippy = ["clippy", "--all-targets", "--locked"];
        runner.cargo(
            &folder,
            &[&clippy[..], &runner.profiles(), &["--", "-D", "warnings"]].concat(),
        )?;
        runner.run(&folder, &["--locked"])?;
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

/// Copies the examples into a workspace, where their dependencies have versions but no paths.
/// Returns the names of the copies.
pub(crate) fn copy(workspace: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in folders()? {
        let name = folder.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        let mut copy = command("cp", &["--recursive", "--no-target-directory"]);
        copy.arg(&folder).arg(workspace.join(name));
        check(copy)?;
        let manifest = workspace.join(name).join("Cargo.toml");
        let text = member(&std::fs::read_to_string(&manifest)?).with_context(|| name.to_owned())?;
        std::fs::write(manifest, text)?;
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Runs copies of examples, whose workspace is complete. The program `retrograph-sim` is built.
pub(crate) fn run_copies(workspace: &Path, names: &[String]) -> anyhow::Result<()> {
    let runner = Runner::new()?;
    names.iter().try_for_each(|name| runner.run(&workspace.join(name), &[]))
}

/// The manifest of an example as a member of another workspace, whose section `[patch]` has our
/// packages.
fn member(manifest: &str) -> anyhow::Result<String> {
    let mut manifest: toml::Table = toml::from_str(manifest)?;
    manifest.remove("workspace").context("a table `workspace`")?;
    for title in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let section = manifest.get_mut(title).and_then(toml::Value::as_table_mut);
        for (_, dependency) in section.into_iter().flatten() {
            if let Some(table) = dependency.as_table_mut() {
                table.remove("path");
            }
        }
    }
    Ok(toml::to_string(&manifest)?)
}

/// Runs examples: on the simulator, and with `nvcc`.
struct Runner {
    /// The folder of the simulator's libcuda.so.1, for programs that load it by name.
    library: PathBuf,
    nvcc: PathBuf,
    profiles: Vec<String>,
}

impl Runner {
    /// The program `retrograph-sim` is built.
    fn new() -> anyhow::Result<Self> {
        let library = target_dir().join("libcuda");
        let mut command = Command::new(target_dir().join("debug/retrograph-sim"));
        command.args(["library", "--out"]).arg(&library);
        check(command)?;
        Ok(Self { library, nvcc: toolchain::nvcc()?, profiles: profiles() })
    }

    /// Runs cargo in the folder of an example.
    fn cargo(&self, folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target_dir());
        command.env("LD_LIBRARY_PATH", &self.library).env("NVCC", &self.nvcc);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        check(command).with_context(|| format!("example {name}"))
    }

    fn profiles(&self) -> Vec<&str> {
        self.profiles.iter().map(String::as_str).collect()
    }

    /// Runs the program of an example, or the tests of a library.
    fn run(&self, folder: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let verb = if folder.join("src/main.rs").is_file() { "run" } else { "test" };
        self.cargo(folder, &[&[verb], flags, &self.profiles()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_versions_and_no_paths() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\n\
                        ours = { path = \"../../crates/ours\", version = \"0.1.0\" }\n\
                        other = \"2\"\n[workspace]\n";
        let copy: toml::Table = toml::from_str(&member(manifest).unwrap()).unwrap();
        assert_eq!(
            copy["dependencies"]["ours"],
            toml::Value::Table(toml::toml! { version = "0.1.0" })
        );
        assert_eq!(copy["dependencies"]["other"].as_str(), Some("2"));
        assert!(!copy.contains_key("workspace"));
        assert!(member("[package]\n").is_err(), "it would belong to the workspace above");
    }
}
