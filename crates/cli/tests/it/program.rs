//! Runs the program and checks its results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a text, in which the program runs on the simulated driver.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// The results of a run of the program.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The options of a model that trains fast.
pub(crate) const SMALL: [&str; 14] = [
    "--layers",
    "1",
    "--hidden",
    "16",
    "--intermediate",
    "24",
    "--heads",
    "4",
    "--batch",
    "2",
    "--seq",
    "8",
    "--sample",
    "12",
];

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("text"), "all work and no play. ".repeat(20)).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `retrograph finetune --text text` with a small model and further arguments.
    pub(crate) fn finetune(&self, further: &[&str]) -> Done {
        self.command(further).into()
    }

    /// The same as a command that the caller starts.
    pub(crate) fn command(&self, further: &[&str]) -> Command {
        let mut command = self.program();
        command.args(["finetune", "--text", "text", "--device", "sim"]).args(SMALL);
        command.args(further);
        command
    }

    /// The program in this folder.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_retrograph"));
        command.current_dir(self.folder.path());
        command
    }
}

impl From<Command> for Done {
    fn from(mut command: Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { code: status.code(), out: text(&stdout), err: text(&stderr) }
    }
}

impl Done {
    /// Asserts that the program succeeded.
    pub(crate) fn good(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self
    }

    /// Asserts that the program failed and its error contains each of `words`.
    pub(crate) fn bad(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert!(self.err.starts_with("error: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        self
    }
}

/// A report as JSON.
pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
