//! What can be wrong with an adapter, or with the model that it is merged into.

use std::path::{Path, PathBuf};

/// Why an adapter cannot be read, written or merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
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
    /// A weight that is to be merged is infinite or not a number.
    #[error(
        "element {index} of `{name}` in `{}` is {value}; weights must be finite: fetch or train \
         them again",
        path.display()
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Which element.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// A merged weight is larger than its type can express.
    #[error(
        "element {index} of `{name}` in `{}` would be {value} after the merge, which {dtype} \
         cannot express; store the base model in a wider type",
        path.display()
    )]
    Overflow {
        /// The file of the base model.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Which element.
        index: usize,
        /// What it would be.
        value: f64,
        /// The type in which the base model stores the tensor.
        dtype: String,
    },
    /// A file cannot be written. What was in its place before is still there.
    #[error("`{}` cannot be written: {source}; nothing was replaced", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is truncated or something else.
    #[error("`{}` cannot be used: {why}; fetch or write it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
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
        /// What is supported.
        rule: &'static str,
    },
    /// A tensor is missing.
    #[error(
        "`{}` has no tensor `{name}`; it belongs to another model, or to other options",
        path.display()
    )]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// There is a tensor for which the model, or the configuration of the adapter, has no place.
    #[error("`{}` has a tensor `{name}`, but {why}", path.display())]
    UnexpectedTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Why there is no place for it.
        why: &'static str,
    },
    /// A tensor has another shape than the model or the rank says.
    #[error(
        "`{name}` in `{}` has the shape {found:?}, and {expected:?} belongs there; the adapter is \
         of another model, or of another rank than it says",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// A tensor has elements of a type that is not supported.
    #[error("`{name}` in `{}` is of type {found}; F32, BF16 and F16 are supported", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type.
        found: String,
    },
    /// The caller stopped a merge.
    #[error("the merge was stopped, and nothing was written")]
    Stopped,
    /// The adapter is of other options than the run.
    #[error(
        "the adapter is {saved}, and the run is {asked}; leave out the LoRA options, which come \
         from the adapter"
    )]
    Options {
        /// Those of the adapter.
        saved: String,
        /// Those of the run.
        asked: String,
    },
    /// The run trains all weights, so that there is no adapter.
    #[error("all weights are trained, so there is no adapter to write; train by LoRA")]
    NotLora,
    /// A trained value is infinite or not a number.
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
    /// Something else is where the result would go.
    #[error(
        "`{}` holds `{entry}`, which is not to be replaced; give another directory",
        path.display()
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The first entry that is in the way.
        entry: String,
    },
}

impl AdapterError {
    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.into() }
    }
}
