//! What can go wrong in the program beyond what the library reports.

use std::path::{Path, PathBuf};

use retrograph_finetune::{Error, HubError};

use crate::hints;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The run failed.
    #[error("{error}{hint}", error = .0, hint = hints::of(.0))]
    Finetune(#[from] retrograph_finetune::Error),
    /// The sequences of training or evaluation do not fit the context of the model.
    #[error("{0}\nhint: --seq sets the tokens of a sequence")]
    SequenceTooLong(retrograph_finetune::Error),
    /// Several outputs failed, or the run and outputs before.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nerror: "))]
    Several(Vec<CliError>),
    /// There is no checkpoint from which the run could go on.
    #[error(
        "there is no checkpoint in `{}`; leave out --resume to start a new run there", .0.display()
    )]
    NothingToResume(PathBuf),
    /// An option of LoRA was given for a run that trains all weights.
    #[error(
        "{0} is an option of LoRA, but all weights are trained; add --mode lora or leave it out"
    )]
    NeedsLora(&'static str),
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
    Interrupt(std::io::Error),
    /// What the program shows was lost.
    #[error("standard output cannot be written to: {0}; what the command printed is incomplete")]
    Output(std::io::Error),
    /// A model was to be read from a directory without a checkpoint.
    #[error(
        "there is no checkpoint in `{}`; give the directory to which a finetune run wrote its \
         checkpoints", .0.display()
    )]
    NoCheckpoint(PathBuf),
    /// The loss is not a number, since a weight is not.
    #[error(
        "the loss is {loss}, since element {index} of `{tensor}` is {value}; the weights are \
         damaged or of a run that diverged: fetch or train them again"
    )]
    WeightNotFinite {
        /// The loss.
        loss: f64,
        /// The first tensor that is not finite.
        tensor: String,
        /// Its first element that is not.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// The loss is not a number, and all weights are.
    #[error(
        "the loss is {loss}, although all weights are finite: activations overflow, or the data \
         has tokens outside of the vocabulary of {vocab}; use the data and the tokenizer of this \
         model, or other weights"
    )]
    LossNotFinite {
        /// The loss.
        loss: f64,
        /// Tokens that the model knows.
        vocab: usize,
    },
}

impl CliError {
    /// An error of a command whose sequences `--seq` sets.
    pub(crate) fn of_sequences(error: retrograph_finetune::Error) -> Self {
        match error {
            Error::Model(HubError::TooLong { .. }) => Self::SequenceTooLong(error),
            error => error.into(),
        }
    }

    /// `what` could not be written to `path`.
    pub(crate) fn write(what: &'static str, path: &Path, why: impl ToString) -> Self {
        Self::Write { what, path: path.to_owned(), why: why.to_string() }
    }
}
