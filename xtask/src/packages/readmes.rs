//! Follows the README of each published package, as on a clean machine. It compiles and runs the
//! code of libraries, and runs the commands of programs.
//!
//! For a library, a new package gets the dependencies in the `cargo add` lines of the README, and
//! its examples as printed. It is built with the packages from their archives, and runs on the
//! simulator.
//!
//! A code block belongs to the file that the preceding line names (`` `build.rs`: ``). Without such
//! a line, each Rust block is a program, unless it has `ignore`. A block with `no_run` is only
//! built.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use super::{Package, commands, unpacked_manifest};
use crate::workspace::{check, command, profiles, target_dir};

/// The steps in a README.
#[derive(Debug, Default, PartialEq)]
struct Steps {
    /// Names of packages, and whether they are for the build script.
    dependencies: Vec<(String, bool)>,
    /// Contents by path.
    files: BTreeMap<String, String>,
    /// Names of programs that run.
    programs: Vec<String>,
}

/// The package whose README has a program that loads the driver of the machine.
const CLIENT: &str = "readme-retrograph-driver";

/// Follows the README of every package, in the workspace `unpacked` of the archives and of the
/// packages `others`.
pub(super) fn follow(
    packages: &[Package],
    unpacked: &Path,
    others: &[String],
) -> anyhow::Result<()> {
    let build = |package: &str| {
        let mut build = command("cargo", &["build", "-p", package]);
        build.args(profiles()).current_dir(unpacked).env("CARGO_TARGET_DIR", target_dir());
        check(build)
    };
    let mut followed = Vec::new();
    let readme_of =
        |package: &Package| fs::read_to_string(unpacked.join(package.id()).join("README.md"));
    for package in packages.iter().filter(|package| !package.is_program()) {
        let readme = readme_of(package)?;
        let name = format!("readme-{}", package.name);
        let steps = Steps::of(&readme, &name).with_context(|| package.name.clone())?;
        write(&unpacked.join(&name), &name, &steps, packages)?;
        followed.push((name, steps));
    }
    let names = followed.iter().map(|(name, _)| name.clone());
    let names: Vec<_> = names.chain(others.iter().cloned()).collect();
    fs::write(unpacked.join("Cargo.toml"), unpacked_manifest(packages, &names))?;
    build("retrograph-sim")?;
    let simulator = target_dir().join("debug/retrograph-sim");
    let simulator = simulator.to_str().context("a path that is not text")?;
    for (name, steps) in &followed {
        build(name).with_context(|| format!("the README of {name}"))?;
        for program in &steps.programs {
            let path = target_dir().join("debug").join(program);
            let mut run = command(simulator, &["run", "--"]);
            run.arg(path).current_dir(unpacked.join(name));
            check(run).with_context(|| format!("the README of {name}"))?;
        }
    }
    for package in packages.iter().filter(|package| package.is_program()) {
        let Package { name, .. } = package;
        build(name)?;
        let program = |name: &str| target_dir().join("debug").join(name);
        let folder = unpacked.join(format!("commands-{name}"));
        let readme = readme_of(package)?;
        commands::run(name, &readme, &program(name), &program(CLIENT), &folder)
            .with_context(|| format!("the README of {name}"))?;
    }
    Ok(())
}

/// Writes the package of a README.
fn write(folder: &Path, name: &str, steps: &Steps, packages: &[Package]) -> anyhow::Result<()> {
    let mut manifest =
        format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
    for (title, of_build) in [("dependencies", false), ("build-dependencies", true)] {
        writeln!(manifest, "\n[{title}]")?;
        for (dependency, _) in steps.dependencies.iter().filter(|(_, it)| *it == of_build) {
            // Other packages have the version in the lock file.
            let known = packages.iter().find(|package| package.name == *dependency);
            let version = known.map_or("*", |package| &package.version);
            writeln!(manifest, "{dependency} = \"{version}\"")?;
        }
    }
    let manifest = [("Cargo.toml".to_owned(), manifest)];
    for (path, text) in manifest.iter().map(|(path, text)| (path, text)).chain(&steps.files) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

impl Steps {
    /// Reads a README. `name` is the name of the package that is made of it.
    fn of(readme: &str, name: &str) -> anyhow::Result<Self> {
        let mut steps = Self::default();
        let mut lines = readme.lines();
        let mut before = "";
        while let Some(line) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else {
                before = if line.is_empty() { before } else { line };
                continue;
            };
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            let file = before.strip_prefix('`').and_then(|rest| rest.strip_suffix("`:"));
            before = "";
            match (file, kind) {
                (Some(file), _) => steps.add_file(file, &block, name)?,
                (None, "sh") => block.iter().for_each(|line| steps.add_command(line)),
                (None, _) if kind.starts_with("rust") && !kind.contains("ignore") => {
                    let number = steps.files.keys().filter(|path| path.ends_with(".rs")).count();
                    let (program, path) = match number {
                        0 => (name.to_owned(), "src/main.rs".to_owned()),
                        _ => (format!("{name}-{number}"), format!("src/bin/{name}-{number}.rs")),
                    };
                    steps.add_rust(path, &block)?;
                    if !kind.contains("no_run") {
                        steps.programs.push(program);
                    }
                }
                _ => {}
            }
        }
        if steps.files.is_empty() || steps.dependencies.is_empty() {
            bail!("no example, or no line `cargo add …` in a block `sh`");
        }
        Ok(steps)
    }

    fn add_file(&mut self, path: &str, block: &[&str], name: &str) -> anyhow::Result<()> {
        if path == "src/main.rs" {
            self.programs.push(name.to_owned());
        }
        match path.ends_with(".rs") {
            true => self.add_rust(path.to_owned(), block),
            false => {
                self.files.insert(path.to_owned(), block.join("\n") + "\n");
                Ok(())
            }
        }
    }

    /// Adds a program, which must be complete: README pages show lines that rustdoc hides.
    fn add_rust(&mut self, path: String, block: &[&str]) -> anyhow::Result<()> {
        let is_hidden = |line: &&&str| line.starts_with("# ") || **line == "#";
        if let Some(hidden) = block.iter().find(is_hidden) {
            bail!("`{hidden}` is visible on a page of a README");
        }
        if !block.iter().any(|line| line.starts_with("fn main(")) {
            bail!("an example without `fn main`: {}", block.first().unwrap_or(&""));
        }
        self.files.insert(path, block.join("\n") + "\n");
        Ok(())
    }

    /// Adds what `cargo add` names.
    fn add_command(&mut self, line: &str) {
        let Some(words) = line.strip_prefix("cargo add ") else { return };
        let of_build = words.split_whitespace().any(|word| word == "--build");
        let names = words.split_whitespace().filter(|word| !word.starts_with("--"));
        self.dependencies.extend(names.map(|name| (name.to_owned(), of_build)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_dependencies_files_and_programs() {
        let readme = "# p\n\n```sh\ncargo add one two\ncargo add --build three\n```\n\n\
                      `build.rs`:\n\n```rust,no_run\nfn main() {}\n```\n\n`src/a.txt`:\n\n\
                      ```text\nA\n```\n\nText.\n\n```rust\nfn main() { }\n```\n\n\
                      ```rust,ignore\nlet x = 1;\n```\n";
        let steps = Steps::of(readme, "p").unwrap();
        let names = [("one", false), ("two", false), ("three", true)];
        assert_eq!(steps.dependencies, names.map(|(name, it)| (name.to_owned(), it)));
        let files: Vec<_> = steps.files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let expected = [
            ("build.rs", "fn main() {}\n"),
            ("src/a.txt", "A\n"),
            ("src/bin/p-1.rs", "fn main() { }\n"),
        ];
        assert_eq!(files, expected);
        assert_eq!(steps.programs, ["p-1"]);
    }

    #[test]
    fn examples_that_cannot_be_copied_are_refused() {
        for (example, reason) in
            [("let x = 1;", "without `fn main`"), ("fn main() {\n# hidden();\n}", "`# hidden();`")]
        {
            let readme = format!("```sh\ncargo add one\n```\n```rust\n{example}\n```\n");
            let refused = Steps::of(&readme, "p").unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
        let refused = Steps::of("```rust\nfn main() {}\n```\n", "p").unwrap_err().to_string();
        assert!(refused.contains("cargo add"), "{refused}");
    }
}
