//! Errors of exports.

use std::path::PathBuf;

/// Why a model cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A weight is infinite or NaN.
    #[error(
        "element {index} of `{name}` is {value}; weights must be finite; download or train them \
         again"
    )]
    NotFinite {
        /// The tensor.
        name: String,
        /// Index of the element.
        index: usize,
        /// Its value.
        value: f32,
    },
    /// A weight exceeds the range of the stored type.
    #[error(
        "element {index} of `{name}` would be {value}, beyond the range of {dtype}; store the \
         model in a wider type, bf16 or f32"
    )]
    Overflow {
        /// The tensor.
        name: String,
        /// Index of the element.
        index: usize,
        /// Its value in f64.
        value: f64,
        /// The type.
        dtype: &'static str,
    },
    /// The format cannot store weights of this type.
    #[error("{format} does not store weights as {dtype}; give {supported}")]
    Type {
        /// The format.
        format: &'static str,
        /// The type.
        dtype: &'static str,
        /// The types that it stores.
        supported: &'static str,
    },
    /// The model has parts that the format cannot express.
    #[error("{format} cannot express {what}; {remedy}")]
    NotExpressible {
        /// The format.
        format: &'static str,
        /// The part.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The output exists.
    #[error("`{}` exists and is not replaced; remove it or give another path", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The output cannot be written.
    #[error("`{}` cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The caller stopped the export.
    #[error("the export was stopped, and nothing was written")]
    Stopped,
}
