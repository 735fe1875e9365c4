//! Errors of adapters.

use std::path::{Path, PathBuf};

use crate::files::FileError;

/// Why an adapter cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The elements of a tensor cannot be read.
    #[error("the tensor `{name}` in `{}` cannot be read: {source}", path.display())]
    ReadTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file is truncated or has another format.
    #[error("`{}` cannot be used: {reason}; download or write it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The adapter was made with an option that is not supported.
    #[error("`{}` has \"{key}\": {value}, but {rule}", path.display())]
    Option {
        /// The configuration of the adapter.
        path: PathBuf,
        /// The option.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// The supported values.
        rule: &'static str,
    },
    /// A tensor is missing.
    #[error(
        "`{}` has no tensor `{name}`; it belongs to another model or has other LoRA options",
        path.display()
    )]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor belongs neither to the model nor to the configuration of the adapter.
    #[error("`{}` has a tensor `{name}`, but {reason}", path.display())]
    UnexpectedTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Why it is not expected.
        reason: &'static str,
    },
    /// The shape of a tensor contradicts the model or the rank.
    #[error(
        "`{name}` in `{}` has the shape {found:?} instead of {expected:?}; the adapter belongs to \
         another model, or its configuration has the wrong rank",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape.
        expected: Vec<usize>,
    },
    /// The dtype of a tensor is not supported.
    #[error(
        "`{name}` in `{}` has the dtype {found}; F32, BF16 and F16 are supported",
        path.display()
    )]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its dtype.
        found: String,
    },
    /// The LoRA options of the adapter and of the run differ.
    #[error(
        "the adapter has {saved}, but the run has {asked}; leave out the LoRA options of the run, \
         which come from the adapter"
    )]
    Options {
        /// The options of the adapter.
        saved: String,
        /// The options of the run.
        asked: String,
    },
    /// The run trains all weights, so there is no adapter.
    #[error("all weights are trained, so there is no adapter to write; train with LoRA")]
    NotLora,
    /// A trained value is infinite or NaN.
    #[error(
        "`{name}` has the value {value}, so no adapter was written; try a smaller learning rate or \
         a longer warm-up"
    )]
    TrainedNotFinite {
        /// The parameter.
        name: String,
        /// Its first value that is not finite.
        value: f32,
    },
}

impl AdapterError {
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}
