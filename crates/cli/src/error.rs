//! Errors that the program adds to the errors of the library.

use std::path::{Path, PathBuf};

use retrograph_finetune::{Error, HubError, LoraLayers, LoraTargets, WeightType};

use crate::config_file::ConfigError;
use crate::hints;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The run failed.
    #[error("{error}{hint}", error = .0, hint = hints::of(.0))]
    Finetune(#[from] retrograph_finetune::Error),
    /// The sequences of training or evaluation do not fit the context of the model.
    #[error("{0}\nhint: --seq sets the tokens per sequence")]
    SequenceTooLong(retrograph_finetune::Error),
    /// Several outputs failed, or outputs and then the run.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nerror: "))]
    Several(Vec<CliError>),
    /// There is no checkpoint to resume from.
    #[error(
        "there is no checkpoint in `{}`; leave out --resume to start a new run there", .0.display()
    )]
    NothingToResume(PathBuf),
    /// A LoRA option was given for a run that trains all weights.
    #[error("{0} is a LoRA option, but all weights are trained; add --mode lora or leave it out")]
    NeedsLora(&'static str),
    /// A pattern of ranks or alphas matches nothing.
    #[error(
        "the pattern `{pattern}` matches no module with a LoRA update ({targets} of layers \
         {layers}); a pattern matches the end of a name such as model.layers.3.self_attn.q_proj"
    )]
    UnusedPattern {
        /// The pattern.
        pattern: &'static str,
        /// The projections with updates.
        targets: LoraTargets,
        /// The layers with updates.
        layers: LoraLayers,
    },
    /// An option was given that has no effect without another one.
    #[error("{option} has no effect without {needed}; add it or leave out {option}")]
    Ignored {
        /// The option.
        option: &'static str,
        /// What it needs.
        needed: &'static str,
    },
    /// The configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A result could not be written.
    #[error("{what} cannot be written to `{}`: {reason}", path.display())]
    Write {
        /// The output.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Trained weights could not be written to their directory, but to another one.
    #[error("{error}; the weights were written to `{}` instead", path.display())]
    WrittenBeside {
        /// Why.
        error: Box<retrograph_finetune::Error>,
        /// The other directory.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("{what} cannot be read from `{}`: {reason}", path.display())]
    Read {
        /// The input.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A manually built graph cannot contain the collectives of several GPUs.
    #[error(
        "--strategy manual cannot contain the NCCL calls that exchange gradients between GPUs; \
         leave it out, or give --strategy capture or --strategy eager"
    )]
    ManualOfRanks,
    /// The prompt in a file cannot be used.
    #[error("the prompt in `{}` cannot be used: {error}{}", path.display(), hints::of(error))]
    Prompt {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<retrograph_finetune::Error>,
    },
    /// An adapter was given for a run that trains all weights.
    #[error(
        "--adapter is for --mode lora, but --mode full has no LoRA matrices; leave out one of them"
    )]
    AdapterOfFull,
    /// An adapter was asked for, but there is none.
    #[error(
        "there is no LoRA adapter to write; give --adapter or the --checkpoint of a LoRA run, or \
         leave out --adapter-only"
    )]
    NoAdapter,
    /// An adapter directory was requested with weights of another type than f32.
    #[error(
        "an adapter directory has weights in f32, so --dtype {0} is not possible; leave it out, or \
         give --format gguf"
    )]
    AdapterType(WeightType),
    /// The processes of a run on several GPUs cannot be placed or started, or one has failed.
    #[error("{0}")]
    Ranks(String),
    /// An error of a rank other than 0.
    #[error("rank {0}: {1}")]
    OfRank(usize, Box<CliError>),
    /// Two served models have one name.
    #[error(
        "two models have the name `{0}`; give each --adapter NAME=DIR its own name, or the base \
         model another one with --name"
    )]
    ModelTwice(String),
    /// The HTTP server cannot listen.
    #[error("the server cannot listen on {address}: {reason}; --port and --host set the address")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        reason: std::io::Error,
    },
    /// The HTTP server stopped while it was running.
    #[error("the server on {address} stopped: {reason}; start it again")]
    Serve {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        reason: std::io::Error,
    },
    /// The batch has no equal parts for all GPUs.
    #[error("--batch is {batch}, but it must be a multiple of the number of GPUs, {ranks}")]
    UnequalParts {
        /// Sequences, or pairs, per step.
        batch: usize,
        /// Number of GPUs.
        ranks: usize,
    },
    /// The bundle of compiled kernels cannot be used.
    #[error("{0}\nhint: --bundle names the file; `cargo xtask prewarm --bundle` writes one")]
    Bundle(#[from] retrograph_runtime::modules::BundleError),
    /// The compiler cannot be started.
    #[error("the compiler `{}` cannot be started: {source}; correct --compile", path.display())]
    Compiler {
        /// The program.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The path of the program is unknown, so it cannot start compiler processes.
    #[error("this program cannot start compiler processes: {0}; use --compile driver")]
    OwnProgram(std::io::Error),
    /// A compiler process lost its parent process.
    #[error("the process that started this compiler is gone: {0}")]
    Worker(std::io::Error),
    /// Ctrl-C cannot be handled.
    #[error("the handler for Ctrl-C cannot be installed: {0}")]
    Interrupt(std::io::Error),
    /// Output was lost.
    #[error("standard output cannot be written: {0}; the printed output is incomplete")]
    Output(std::io::Error),
    /// The directory of a model to load has no checkpoint.
    #[error(
        "there is no checkpoint in `{}`; give the --checkpoint directory of a finetune \
         run", .0.display()
    )]
    NoCheckpoint(PathBuf),
    /// The loss is not finite because a weight is not.
    #[error(
        "the loss is {loss}, because element {index} of `{tensor}` is {value}; the weights are \
         damaged or their training diverged: download or train them again"
    )]
    WeightNotFinite {
        /// The loss.
        loss: f64,
        /// The first tensor that is not finite.
        tensor: String,
        /// Its first element that is not finite.
        index: usize,
        /// The value of the element.
        value: f32,
    },
    /// The loss is not finite, but all weights are.
    #[error(
        "the loss is {loss}, although all weights are finite: activations overflow, or tokens of \
         the data are outside the vocabulary of {vocab} tokens; use the tokenizer of this model, \
         or other weights"
    )]
    LossNotFinite {
        /// The loss.
        loss: f64,
        /// Vocabulary size of the model.
        vocab: usize,
    },
}

impl CliError {
    /// Converts the error of a command that has `--seq`, and adds a hint about it.
    pub(crate) fn of_sequences(error: retrograph_finetune::Error) -> Self {
        match error {
            Error::Model(HubError::TooLong { .. }) => Self::SequenceTooLong(error),
            error => error.into(),
        }
    }

    /// Whether another rank ended the run. Threads may then still be inside NCCL, and the exit
    /// handlers of libraries can crash or hang.
    pub(crate) fn is_of_another_rank(&self) -> bool {
        match self {
            Self::Finetune(Error::Group(_)) => true,
            Self::OfRank(_, error) => error.is_of_another_rank(),
            Self::Several(errors) => errors.iter().any(Self::is_of_another_rank),
            _ => false,
        }
    }

    /// Returns the error that `what` cannot be written to `path`.
    pub(crate) fn write(what: &'static str, path: &Path, reason: impl ToString) -> Self {
        Self::Write { what, path: path.to_owned(), reason: reason.to_string() }
    }
}
