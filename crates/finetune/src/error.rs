//! Everything that can go wrong in a training run, with its cause and the way out.

use std::path::PathBuf;

use retrograph_runtime::modules::UnsupportedDevice;

/// The outcome of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text cannot be read.
    #[error("the text `{}` cannot be read: {source}; give a readable file", path.display())]
    ReadText {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text has more tokens than a run can use.
    #[error(
        "the text `{}` is too long: {bytes} bytes of it have more than {limit} tokens, which is \
         the limit; use a part of it",
        path.display()
    )]
    TextTooLong {
        /// The file.
        path: PathBuf,
        /// Bytes of the file, or those that were read.
        bytes: u64,
        /// The most tokens.
        limit: usize,
    },
    /// The text has no room for one sequence and the token after it.
    #[error(
        "the text has {tokens} tokens, but a sequence of {seq} tokens needs {needed}; use a longer \
         text or shorter sequences"
    )]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of a sequence.
        seq: usize,
        /// The least number of tokens.
        needed: usize,
    },
    /// A value of the configuration cannot be used.
    #[error("{field} is {value}, but it must be {rule}")]
    InvalidConfig {
        /// The value's name.
        field: &'static str,
        /// The value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// There is nothing to continue.
    #[error("the prompt has no token; give at least one to be continued")]
    EmptyPrompt,
    /// The prompt leaves no room for a token behind it.
    #[error(
        "the prompt has {tokens} tokens, but prompt and text together may have {room}; shorten it \
         or allow more tokens"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The most tokens.
        room: usize,
    },
    /// The prompt has a token that the model does not know.
    #[error(
        "token {index} of the prompt is {token}, but the model knows {vocab} tokens; use the \
         tokenizer of the model"
    )]
    TokenOutside {
        /// Which token of the prompt, counted from 0.
        index: usize,
        /// The token.
        token: u32,
        /// Entries of the token table.
        vocab: usize,
    },
    /// The model computed what is not a number.
    #[error(
        "the logits of the token at position {position} are not finite, so that none can be \
         chosen; the weights are damaged, or overflow in this precision"
    )]
    LogitsNotFinite {
        /// The position, counted from 0 at the start of the prompt.
        position: usize,
    },
    /// The run does not fit into the memory of the device. Nothing was uploaded.
    #[error(
        "the run needs {planned} bytes of device memory, and {free} of {total} are free: \
         {parameters} for parameters, {optimizer} for moments, {verify} for the copies of \
         the verification, {held_out} for held-out data, {step} for a step and {driver} for the \
         driver; reduce {reduce}, or free other memory of the device. Nothing was uploaded"
    )]
    OutOfMemory {
        /// All bytes that the run would take.
        planned: usize,
        /// Free bytes.
        free: usize,
        /// All bytes of the device.
        total: usize,
        /// Bytes of the parameters.
        parameters: usize,
        /// Bytes of both moments.
        optimizer: usize,
        /// Bytes of the second set of state that verification keeps.
        verify: usize,
        /// Bytes of activations, gradients, controls and tables.
        step: usize,
        /// Bytes of the forward pass over held-out data.
        held_out: usize,
        /// Bytes that the driver takes for graphs, and leaves over of its pages.
        driver: usize,
        /// What to reduce first.
        reduce: Reduce,
    },
    /// The loss or the norm of the gradients is not a number any more. The device changed nothing
    /// from that step on.
    #[error(
        "step {step}: the loss is {loss} and the gradient norm {norm}; {kept}. Try a smaller \
         learning rate or a longer warm-up"
    )]
    NotFinite {
        /// The step, counted from 0.
        step: u32,
        /// The loss.
        loss: f32,
        /// The norm of the gradients before clipping.
        norm: f32,
        /// What is left of the run.
        kept: Kept,
    },
    /// The loss of held-out data is not a number, so the weights are not usable.
    #[error(
        "after {steps} steps the loss of the held-out data is {loss}; {kept}. Try a smaller \
         learning rate or a longer warm-up"
    )]
    HeldOutNotFinite {
        /// Steps that were done.
        steps: u32,
        /// The loss.
        loss: f32,
        /// What is left of the run.
        kept: Kept,
    },
    /// A trained weight or a moment is infinite or not a number, so no checkpoint was written.
    #[error(
        "after {steps} steps `{tensor}` has the value {value}; {kept}. Try a smaller learning rate \
         or a longer warm-up"
    )]
    StateNotFinite {
        /// Steps that were done.
        steps: u32,
        /// The tensor of the checkpoint.
        tensor: String,
        /// Its first value that is not finite.
        value: f32,
        /// What is left of the run.
        kept: Kept,
    },
    /// A weight that is to be quantized is infinite or not a number.
    #[error(
        "element {index} of `{parameter}` is {value}, which NF4 cannot represent; the weights may \
         be damaged; check them, or train without quantization"
    )]
    NotQuantizable {
        /// The parameter.
        parameter: String,
        /// Which element.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// The replay and the eager step computed different bits.
    #[error(
        "step {step}: element {index} of {tensor} is {replayed:?} in the {strategy} program and \
         {eager:?} in the eager one; this is a defect of the kernels or of the driver"
    )]
    NotBitEqual {
        /// The step, counted from 0.
        step: u32,
        /// The tensor.
        tensor: String,
        /// The first element that differs.
        index: usize,
        /// Its value in the program under test.
        replayed: f32,
        /// Its value in the eager program.
        eager: f32,
        /// The strategy of the program under test.
        strategy: retrograph_runtime::Strategy,
    },
    /// There is no checkpoint.
    #[error("there is no checkpoint in `{}`; give the directory of a run", path.display())]
    NoCheckpoint {
        /// The directory.
        path: PathBuf,
    },
    /// A new run would mix with the checkpoints of another.
    #[error(
        "`{}` already holds `{}`; continue that run, or give another directory",
        path.display(), file.file_name().unwrap_or_default().display()
    )]
    CheckpointExists {
        /// The directory.
        path: PathBuf,
        /// A file that is named like a checkpoint.
        file: PathBuf,
    },
    /// Checkpoints go to a directory, and something else has its name.
    #[error(
        "`{}` is not a directory, so it holds no checkpoints; give a directory", path.display()
    )]
    NotADirectory {
        /// What was given.
        path: PathBuf,
    },
    /// Another run writes to the directory.
    #[error(
        "another run uses the checkpoints in `{}`; wait until it ends, or give another directory",
        path.display()
    )]
    CheckpointsInUse {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint cannot be read.
    #[error("the checkpoint `{}` cannot be read: {source}", path.display())]
    ReadCheckpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A checkpoint is truncated, altered or something else.
    #[error(
        "the checkpoint `{}` cannot be used: {why}; resume from an earlier one by naming it in the \
         file `latest` of its directory",
        path.display()
    )]
    CheckpointDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint belongs to another run.
    #[error(
        "the checkpoint is of another run: its {what} is {saved}, and {asked} is asked for; give \
         the options of the run that wrote it, or another directory"
    )]
    CheckpointMismatch {
        /// What differs.
        what: &'static str,
        /// The values in the checkpoint that differ, each with its field.
        saved: String,
        /// The values asked for.
        asked: String,
    },
    /// A checkpoint cannot be written.
    #[error("the checkpoint `{}` cannot be written: {source}; {kept}", path.display())]
    WriteCheckpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
        /// What is left of the run.
        kept: Kept,
    },
    /// Examples cannot be used.
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    /// A model directory cannot be used.
    #[error(transparent)]
    Model(#[from] crate::hub::HubError),
    /// An adapter cannot be read, written or merged.
    #[error(transparent)]
    Adapter(#[from] crate::adapter::AdapterError),
    /// The simulated driver was asked for and is not part of this build.
    #[error("this build has no simulated driver; build it with the feature `sim`")]
    NoSimulator,
    /// The device, its driver or a driver call failed.
    #[error(transparent)]
    Device(#[from] retrograph_runtime::Error),

    /// The device is older than every generated image.
    #[error(transparent)]
    UnsupportedDevice(#[from] UnsupportedDevice),
    /// The model cannot be described as a pass.
    #[error(transparent)]
    Pass(#[from] retrograph_runtime::PassError),
    /// The kernels could not be warmed.
    #[error(transparent)]
    Prewarm(#[from] retrograph_runtime::PrewarmError),
    /// The step could not be built.
    #[error(transparent)]
    Build(#[from] retrograph_runtime::BuildError),
    /// A step failed.
    #[error(transparent)]
    Step(#[from] retrograph_runtime::StepError),
    /// The step could not be profiled.
    #[error(transparent)]
    Profile(#[from] retrograph_runtime::ProfileError),
    /// A control could not be set.
    #[error(transparent)]
    Control(#[from] retrograph_runtime::ControlError),
}

impl From<retrograph_kernels::KernelError> for Error {
    fn from(error: retrograph_kernels::KernelError) -> Self {
        Self::Pass(error.into())
    }
}

impl From<retrograph_runtime::program::CacheError<Self>> for Error {
    fn from(error: retrograph_runtime::program::CacheError<Self>) -> Self {
        use retrograph_runtime::program::CacheError;
        match error {
            CacheError::Describe { cause, .. } => cause,
            CacheError::Build { cause, .. } => Self::Build(*cause),
            other => Self::InvalidConfig {
                field: "the length",
                value: other.to_string(),
                rule: "one for which programs are built".to_owned(),
            },
        }
    }
}

impl Error {
    /// The error with the newest checkpoint that is left, where it says what is left.
    pub(crate) fn with_kept(mut self, newest: Option<PathBuf>) -> Self {
        if let Self::WriteCheckpoint { kept, .. } | Self::StateNotFinite { kept, .. } = &mut self {
            *kept = newest.map_or(Kept::Nothing, Kept::Checkpoint);
        }
        self
    }
}

/// What is left of a run that cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No checkpoint was written.
    Nothing,
    /// The newest checkpoint after which a loss was finite.
    Checkpoint(PathBuf),
    /// The only checkpoint, whose weights gave the value that is not finite.
    Suspect(PathBuf),
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("no checkpoint was written before it"),
            Self::Checkpoint(path) => {
                write!(f, "the last good checkpoint is kept: {}", path.display())
            }
            Self::Suspect(path) => {
                write!(
                    f,
                    "no checkpoint is known to be good, as {} holds the weights of this step",
                    path.display()
                )
            }
        }
    }
}

/// What to reduce first for a run to fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The copies of the verification.
    Verification,
    /// The forward pass over held-out data.
    HeldOut,
    /// Sequences of a step, or their length.
    Batch,
    /// The number of trained weights.
    Trained,
    /// The bytes of the weights.
    Model,
    /// The length of prompt and text together.
    Length,
}

impl std::fmt::Display for Reduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Verification => "it by not verifying",
            Self::HeldOut => "it by holding no data out",
            Self::Batch => "the sequences of a step or their length",
            Self::Trained => "the trained weights, as LoRA does, or take a smaller model",
            Self::Model => "the weights, by bf16, quantization or a smaller model",
            Self::Length => "the length of prompt and text",
        })
    }
}
