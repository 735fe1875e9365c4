//! Outputs that failed while the run went on without them.

use std::fmt::Display;
use std::io::Write;

use crate::error::CliError;

/// Says a failure at once, as the run goes on.
pub(crate) fn warn(error: impl Display) {
    let _ = writeln!(std::io::stderr(), "error: {error}; the run goes on");
}

/// Failures in the order in which they happened.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<CliError>);

impl Failures {
    /// Notes the failure of an output, and returns what was done.
    pub(crate) fn note<T>(&mut self, done: Result<T, impl Into<CliError>>) -> Option<T> {
        done.map_err(|error| self.0.push(error.into())).ok()
    }

    /// Notes a failure, and says it at once, as the run goes on.
    pub(crate) fn warn(&mut self, done: Result<(), CliError>) {
        if let Err(error) = &done {
            warn(error);
        }
        self.note(done);
    }

    /// Fails if anything did, with all failures.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(CliError::Several(self.0)),
        }
    }

    /// The error that ended the run, with all failures before it.
    pub(crate) fn ended_by(mut self, error: CliError) -> CliError {
        if self.0.is_empty() {
            return error;
        }
        self.0.insert(0, error);
        CliError::Several(self.0)
    }
}
