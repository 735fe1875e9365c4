//! Output failures, which do not end the run.

use std::fmt::Display;
use std::io::Write;

use crate::error::CliError;

/// Prints a failure while the run continues.
pub(crate) fn warn(error: impl Display) {
    let _ = writeln!(std::io::stderr(), "error: {error}; the run continues");
}

/// Failures, in order.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<CliError>);

impl Failures {
    /// Stores the failure of an output, or returns its result.
    pub(crate) fn note<T>(&mut self, done: Result<T, impl Into<CliError>>) -> Option<T> {
        done.map_err(|error| self.0.push(error.into())).ok()
    }

    /// Stores a failure and prints it while the run continues.
    pub(crate) fn warn(&mut self, done: Result<(), CliError>) {
        if let Err(error) = &done {
            warn(error);
        }
        self.note(done);
    }

    /// Returns an error with all failures, if there are any.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(CliError::Several(self.0)),
        }
    }

    /// Returns the error that ended the run, with all failures before it.
    pub(crate) fn ended_by(mut self, error: CliError) -> CliError {
        if self.0.is_empty() {
            return error;
        }
        self.0.insert(0, error);
        CliError::Several(self.0)
    }
}
