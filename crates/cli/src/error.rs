//! What can go wrong in the program beyond what the library reports.

use std::path::{Path, PathBuf};

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The run failed.
    #[error(transparent)]
    Finetune(#[from] retrograph_finetune::Error),
    /// A result could not be written.
    #[error("{what} cannot be written to `{}`: {why}", path.display())]
    Write {
        /// What was to be written.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file could not be read.
    #[error("{what} cannot be read from `{}`: {why}", path.display())]
    Read {
        /// What was to be read.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// An adapter was given for a run that trains all weights.
    #[error("--adapter continues a LoRA run, and --mode full trains all weights; leave one out")]
    AdapterOfFull,
    /// The bundle of compiled kernels cannot be used.
    #[error(transparent)]
    Bundle(#[from] retrograph_runtime::modules::BundleError),
    /// The program does not know where it lies, and cannot be started again.
    #[error("this program cannot be started again to compile: {0}; use --compile driver")]
    OwnProgram(std::io::Error),
    /// The process for which this one compiles cannot be talked to.
    #[error("the process that started this one is gone: {0}")]
    Worker(std::io::Error),
    /// Ctrl-C cannot be handled.
    #[error("no handler for Ctrl-C could be set: {0}")]
    Interrupt(#[from] ctrlc::Error),
}

impl CliError {
    /// `what` could not be written to `path`.
    pub(crate) fn write(what: &'static str, path: &Path, why: impl ToString) -> Self {
        Self::Write { what, path: path.to_owned(), why: why.to_string() }
    }
}
