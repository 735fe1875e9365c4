//! The programs and scripts that cases run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, bail};
use serde_json::Value;

use super::cases::Case;
use super::commands::{Call, Place, ours};
use crate::workspace::{self, check};

/// The paths of programs, scripts and Python on the command line.
#[derive(clap::Args)]
pub(crate) struct Places {
    /// The Python that has PyTorch.
    #[arg(long, default_value = PYTHON)]
    python: PathBuf,
    /// Directory of the programs that the cases run: `retrograph`, `gemm_speed`, `attention_speed`
    /// [default: build them].
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Directory of the peers' scripts [default: benches/peers].
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
}

const PYTHON: &str = "python3";

impl Default for Places {
    fn default() -> Self {
        Self { python: PYTHON.into(), bin_dir: None, scripts: None }
    }
}

/// Our programs and the peers' scripts.
pub(crate) struct Programs {
    bin_dir: PathBuf,
    scripts: PathBuf,
    python: PathBuf,
}

impl Programs {
    /// Optimized programs of `cases`.
    pub(crate) fn release(places: &Places, cases: &[Case]) -> anyhow::Result<Self> {
        let targets = ["build", "--locked", "--release", "--bin", "retrograph", "--examples"];
        let packages = ["-p", "retrograph", "-p", "retrograph-kernels"];
        Self::new(places, cases, &[&targets[..], &packages].concat(), "release")
    }

    /// Programs of `cases` for the simulated driver.
    pub(crate) fn debug(places: &Places, cases: &[Case]) -> anyhow::Result<Self> {
        Self::new(places, cases, workspace::BUILD_PROGRAMS, "debug")
    }

    /// Finds the programs in `--bin-dir`, or builds them by cargo with the arguments `build`.
    fn new(places: &Places, cases: &[Case], build: &[&str], folder: &str) -> anyhow::Result<Self> {
        let bin_dir = match &places.bin_dir {
            Some(dir) => std::path::absolute(dir)?,
            None => {
                check(workspace::command("cargo", build))
                    .context("the programs cannot be built; name a directory that has them")?;
                workspace::target_dir().join(folder)
            }
        };
        let scripts = scripts(places.scripts.as_deref())?;
        // A name without a folder is looked up in PATH.
        let python = match places.python.components().count() {
            1 => places.python.clone(),
            _ => std::path::absolute(&places.python)?,
        };
        let found = Self { bin_dir, scripts, python };
        for case in cases {
            found.program(ours(case, Place::Simulator, Path::new("")).program)?;
        }
        Ok(found)
    }

    fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        let places = [self.bin_dir.join(name), self.bin_dir.join("examples").join(name)];
        let found = places.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("{} has no program {name}", self.bin_dir.display()))
    }

    /// Runs one of our programs, which must succeed.
    pub(crate) fn ours(&self, call: &Call) -> anyhow::Result<()> {
        let mut command = Command::new(self.program(call.program)?);
        command.args(&call.arguments);
        self.run(command).map(|_| ())
    }

    /// The JSON lines that a script prints.
    pub(crate) fn script(&self, name: &str, arguments: &[String]) -> anyhow::Result<Vec<Value>> {
        let mut command = Command::new(&self.python);
        command.arg(self.scripts.join(name)).args(arguments);
        // The scripts import each other; keeps bytecode out of their folder.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let output = self.run(command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Compilers may also print lines.
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let parse = |line| serde_json::from_str(line).with_context(|| format!("{name}: {line}"));
        lines.map(parse).collect()
    }

    /// Checks that Python parses every script.
    pub(crate) fn compile_scripts(&self) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        for entry in std::fs::read_dir(&self.scripts)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "py") {
                let mut command = Command::new(&self.python);
                command.args(["-m", "py_compile"]).arg(&path);
                command.env("PYTHONPYCACHEPREFIX", folder.path());
                self.run(command)?;
            }
        }
        Ok(())
    }

    /// Runs a command in the folder of the scripts, so that it finds their files.
    fn run(&self, mut command: Command) -> anyhow::Result<Output> {
        command.current_dir(&self.scripts);
        let line = workspace::describe(&command);
        let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("`{line}` failed, {}: {}", output.status, end(text.trim()));
        }
        Ok(output)
    }
}

/// The last lines of a text, which hold the cause of a failure.
fn end(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// The folder of the scripts: as given, in the workspace, or in the current folder.
fn scripts(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let relative = Path::new("benches/peers");
    let places = match given {
        Some(dir) => vec![dir.to_owned()],
        None => vec![workspace::root().join(relative), relative.to_owned()],
    };
    let found = places.iter().find(|dir| dir.join("machine.py").is_file());
    let found = found.with_context(|| format!("no machine.py in {}", places[0].display()))?;
    Ok(std::path::absolute(found)?)
}
