//! Errors of this crate: what failed, why, and what to do.

mod reduce;

use std::fmt;
use std::path::{Path, PathBuf};

use retrograph_runtime::modules::UnsupportedDevice;

pub use self::reduce::Reduce;
use crate::checkpoint::{CheckpointError, Kept};

/// The result of an operation of this crate.
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
    /// The text cannot be encoded.
    #[error("the text `{}` cannot be used: {source}", path.display())]
    EncodeText {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<crate::hub::HubError>,
    },
    /// The text has more tokens than the limit.
    #[error(
        "the text `{}` is too long: its first {bytes} bytes exceed the limit of {limit} tokens; \
         use a part of it",
        path.display()
    )]
    TextTooLong {
        /// The file.
        path: PathBuf,
        /// Size of the file, or the bytes that were read.
        bytes: u64,
        /// Maximum tokens.
        limit: usize,
    },
    /// The text is shorter than one sequence and its last target.
    #[error(
        "the text{} has {tokens} tokens, but a sequence of {seq} tokens needs {needed}; use a \
         longer text{}",
        named(path.as_deref()), if *tokens > 1 { " or shorter sequences" } else { "" }
    )]
    TextTooShort {
        /// The file, if the text is from one.
        path: Option<PathBuf>,
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of a sequence.
        seq: usize,
        /// Minimum tokens.
        needed: usize,
    },
    /// A value of the configuration is invalid.
    #[error("{field} is {value}, but it must be {rule}")]
    InvalidConfig {
        /// Name of the value.
        field: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        rule: String,
    },
    /// The prompt has no token.
    #[error("the prompt has no token; give at least one")]
    EmptyPrompt,
    /// Every slot of a batch has a sequence, or a step in flight.
    #[error("all {slots} slots of the batch are taken; run steps until a sequence ends")]
    NoFreeSlot {
        /// Sequences of the batch.
        slots: usize,
    },
    /// The prompt leaves no room for generated text.
    #[error(
        "the prompt has {tokens} tokens, but prompt and generated text together may have at most \
         {capacity}; shorten the prompt or increase the maximum length"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Maximum tokens of prompt and generated text.
        capacity: usize,
    },
    /// A token of the prompt is not in the vocabulary of the model.
    #[error(
        "token {index} of the prompt is {token}, but the vocabulary of the model has {vocab} \
         tokens; use the tokenizer of the model"
    )]
    TokenOutside {
        /// Index in the prompt, counted from 0.
        index: usize,
        /// The token.
        token: u32,
        /// Vocabulary size.
        vocab: usize,
    },
    /// A logit is NaN or infinite.
    #[error(
        "no token can be sampled at position {position}: its logits are not finite; the weights \
         are damaged, or overflow in this precision"
    )]
    LogitsNotFinite {
        /// The position, counted from 0 at the start of the prompt.
        position: usize,
    },
    /// The run does not fit into device memory. Nothing was uploaded.
    #[error(
        "the run needs {} of device memory, but {} of {} are free: {} for parameters, {} for \
         moments, {} for the copies of the verification, {} for held-out data, {} for a step and \
         {} for the driver; reduce {reduce}, or free other device memory. Nothing was uploaded",
        Bytes(*planned), Bytes(*free), Bytes(*total), Bytes(*parameters), Bytes(*optimizer),
        Bytes(*verify), Bytes(*held_out), Bytes(*step), Bytes(*driver)
    )]
    OutOfMemory {
        /// Bytes of the run.
        planned: usize,
        /// Free bytes.
        free: usize,
        /// Bytes of the device.
        total: usize,
        /// Bytes of the parameters.
        parameters: usize,
        /// Bytes of both moments.
        optimizer: usize,
        /// Bytes of the second copy of the state, for verification.
        verify: usize,
        /// Bytes of activations, gradients, controls and tables.
        step: usize,
        /// Bytes of the forward pass over held-out data.
        held_out: usize,
        /// Bytes of the driver: graphs, and rounding to its pages.
        driver: usize,
        /// The part to reduce first.
        reduce: Reduce,
    },
    /// The maximum number of steps is in flight. No step was started.
    #[error(
        "{most} steps are in flight, which is the maximum; take the metrics of one with \
         `Trainer::finished` before the next step"
    )]
    StepsInFlight {
        /// Maximum number of steps in flight.
        most: usize,
    },
    /// The loss of an evaluation is NaN or infinite.
    #[error(
        "the loss of the data is {loss}; the weights are damaged, or overflow in this precision; \
         check the weights, or use f32"
    )]
    EvaluationNotFinite {
        /// The loss.
        loss: f64,
    },
    /// The loss or the gradient norm is NaN or infinite. The device skips all updates from that
    /// step on.
    #[error(
        "step {step}: the loss is {loss} and the gradient norm {norm}{}; {kept}. Try a smaller \
         learning rate or a longer warm-up",
        on_rank(*rank)
    )]
    NotFinite {
        /// The step, counted from 0.
        step: u32,
        /// The loss.
        loss: f32,
        /// The gradient norm before clipping.
        norm: f32,
        /// The first rank whose loss or gradients are not finite, if it is known.
        rank: Option<usize>,
        /// The checkpoint that remains.
        kept: Kept,
    },
    /// The loss of held-out data is NaN or infinite.
    #[error(
        "after {steps} steps the loss of the held-out data is {loss}; {kept}. Try a smaller \
         learning rate or a longer warm-up"
    )]
    HeldOutNotFinite {
        /// Completed steps.
        steps: u32,
        /// The loss.
        loss: f32,
        /// The checkpoint that remains.
        kept: Kept,
    },
    /// A trained weight or a moment is NaN or infinite. No checkpoint was written.
    #[error(
        "after {steps} steps `{tensor}` has the value {value}; {kept}. Try a smaller learning rate \
         or a longer warm-up"
    )]
    StateNotFinite {
        /// Completed steps.
        steps: u32,
        /// The tensor of the checkpoint.
        tensor: String,
        /// Its first value that is not finite.
        value: f32,
        /// The checkpoint that remains.
        kept: Kept,
    },
    /// A weight to quantize is NaN or infinite.
    #[error(
        "element {index} of `{parameter}` is {value}, which NF4 cannot represent; the weights may \
         be damaged; check them, or train without quantization"
    )]
    NotQuantizable {
        /// The parameter.
        parameter: String,
        /// Index of the element.
        index: usize,
        /// Its value.
        value: f32,
    },
    /// A frozen weight is not exact in 16 bits, although the precision requires it.
    #[error(
        "element {index} of `{parameter}` is {value}, which is not exact in f16 with the scale of \
         its row; the precision of the run requires frozen weights of 16 bits"
    )]
    NotInF16 {
        /// The parameter.
        parameter: String,
        /// Index of the element.
        index: usize,
        /// Its value.
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
    /// The simulated driver is not part of this build.
    #[error("this build has no simulated driver; build it with the feature `sim`")]
    NoSimulator,
    /// A checkpoint cannot be read, written or continued.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Examples cannot be used.
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    /// A model directory cannot be used.
    #[error(transparent)]
    Model(#[from] crate::hub::HubError),
    /// An adapter cannot be read or written.
    #[error(transparent)]
    Adapter(#[from] crate::adapter::AdapterError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// A model cannot be written.
    #[error(transparent)]
    Export(#[from] crate::export::ExportError),
    /// Another process of the run failed, or cannot be reached.
    #[error(transparent)]
    Group(crate::group::GroupError),
    /// The device, its driver or a driver call failed.
    #[error(transparent)]
    Device(#[from] retrograph_runtime::Error),
    /// The device is older than every embedded image.
    #[error(transparent)]
    UnsupportedDevice(#[from] UnsupportedDevice),
    /// The model cannot be described as a pass.
    #[error(transparent)]
    Pass(#[from] retrograph_runtime::PassError),
    /// The kernels could not be loaded.
    #[error(transparent)]
    Prewarm(#[from] retrograph_runtime::PrewarmError),
    /// The program could not be built.
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

/// Returns a file name to append to a noun, or nothing.
pub(crate) fn named(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!(" `{}`", path.display()))
}

fn on_rank(rank: Option<usize>) -> String {
    rank.map_or_else(String::new, |rank| format!(", because of the values of rank {rank}"))
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

/// A number of bytes with a binary unit.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..0x400 => write!(f, "{} B", self.0),
            0x400..0x10_0000 => write!(f, "{:.1} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", bytes / f64::from(1 << 20)),
            _ => write!(f, "{:.2} GiB", bytes / f64::from(1 << 30)),
        }
    }
}

impl Error {
    /// Adds the newest checkpoint to an error that names the remaining checkpoint.
    pub(crate) fn with_kept(mut self, newest: Option<PathBuf>) -> Self {
        if let Self::Checkpoint(CheckpointError::Write { kept, .. })
        | Self::StateNotFinite { kept, .. } = &mut self
        {
            *kept = newest.map_or(Kept::Nothing, Kept::Checkpoint);
        }
        self
    }
}
