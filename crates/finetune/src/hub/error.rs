//! What can be wrong with a model directory.

use std::path::{Path, PathBuf};

/// Why a model directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A file cannot be read.
    #[error(
        "`{}` cannot be read: {source}; a model directory holds config.json and model.safetensors, \
         or model.safetensors.index.json with the files that it names",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A JSON file says something else than it must.
    #[error("`{}` cannot be used: {why}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the field or the place.
        why: String,
    },
    /// The model has a part that the passes do not compute.
    #[error("`{}`: {field} is {value}, which is not supported; {supported} is", path.display())]
    Unsupported {
        /// The configuration.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What can be used.
        supported: &'static str,
    },
    /// A weight file is truncated, altered or something else.
    #[error("the weights `{}` are damaged: {why}; download the file again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A tensor that the index promises is not in the file that it names, or in none.
    #[error("the tensor `{tensor}` is missing in `{}`; the model needs {needs}", path.display())]
    Missing {
        /// The tensor.
        tensor: String,
        /// The file or directory.
        path: PathBuf,
        /// The shape it must have, or who names it.
        needs: String,
    },
    /// A tensor belongs to nothing in the model.
    #[error(
        "the tensor `{tensor}` in `{}` belongs to nothing in a model of this config.json; it may \
         be of another architecture",
        path.display()
    )]
    Extra {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
    },
    /// Two files hold the same tensor.
    #[error("the tensor `{tensor}` is in `{}` and in `{}`", first.display(), second.display())]
    Twice {
        /// The tensor.
        tensor: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A tensor has another shape than the configuration says.
    #[error("the tensor `{tensor}` in `{}` is {found:?}, not {expected:?}", path.display())]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Its dimensions.
        found: Vec<usize>,
        /// Those that the configuration says.
        expected: Vec<usize>,
    },
    /// A tensor has elements of a type that is not read.
    #[error(
        "the tensor `{tensor}` in `{}` has elements of type {found}; F32, F16 and BF16 are read",
        path.display()
    )]
    ElementType {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// The type of its elements.
        found: String,
    },
    /// The sequences of the run are longer than the model's context.
    #[error("a sequence has {seq} tokens, and the model knows {positions} positions; use --seq")]
    TooLong {
        /// Tokens of a sequence.
        seq: usize,
        /// Positions of the model.
        positions: usize,
    },
}

impl HubError {
    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(super) fn json(path: &Path, why: impl ToString) -> Self {
        Self::Json { path: path.to_owned(), why: why.to_string() }
    }

    pub(super) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}
