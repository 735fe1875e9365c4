//! Processes of a suite, and the results of its tests.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::Context;

use super::Setup;
use crate::workspace::describe;

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Pass,
    Fail,
    Skip,
}

/// One test.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// Its name in the suite.
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// The first line of the failure, or why the test was skipped.
    pub(super) cause: String,
}

/// The results of a suite.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Packages and versions.
    pub(super) versions: String,
    pub(super) tests: Vec<Test>,
}

impl Setup {
    /// Returns a command that runs a program on the simulator and ends it after `seconds`. GNU
    /// `timeout` also ends the processes that the program has started.
    pub(super) fn simulated(&self, seconds: u32, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &seconds.to_string()]);
        // Some tests allocate more than the usual 1 GiB.
        command.arg(&self.simulator).args(["run", "--memory", "4G", "--"]).arg(program);
        command
    }

    /// Runs a command with its output in files of the client's folder, and returns its status and
    /// standard output.
    pub(super) fn output(
        &self,
        mut command: Command,
        name: &str,
    ) -> anyhow::Result<(ExitStatus, String)> {
        let path = |ending| self.folder.join(format!("{name}.{ending}"));
        command.stdout(File::create(path("out"))?).stderr(File::create(path("err"))?);
        let status = command.status();
        let status = status.with_context(|| format!("cannot start `{}`", describe(&command)))?;
        let text = std::fs::read(path("out"))?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}
