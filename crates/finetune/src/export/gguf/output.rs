//! The destination of a file.

use std::path::Path;

use crate::export::{ExportError, WeightType};
use crate::hub::ModelDirectory;
use crate::parameters::EMBEDDING;

/// The name of the format in messages.
pub(in crate::export) const FORMAT: &str = "GGUF";

/// The destination of a GGUF file.
#[derive(Clone, Copy, Debug)]
pub struct GgufOutput<'a> {
    /// The file, which must not exist.
    pub path: &'a Path,
    /// The base model, whose tokenizer is stored. Without a base model, tokens are bytes.
    pub base: Option<&'a ModelDirectory>,
    /// The type of matrices; `None` uses the type of the token embeddings in the base model, or f32
    /// without a base model. With Q8_0, rows that are not whole blocks become f16.
    pub dtype: Option<WeightType>,
}

impl GgufOutput<'_> {
    /// Checks that the file does not exist. Call it before long work.
    ///
    /// # Errors
    /// [`ExportError::Exists`].
    pub fn require_free(&self) -> Result<(), ExportError> {
        match self.path.symlink_metadata() {
            Ok(_) => Err(ExportError::Exists { path: self.path.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Returns the type of matrices.
    pub(super) fn dtype(&self) -> WeightType {
        let stored = || WeightType::of(self.base?.dtype(EMBEDDING)?);
        self.dtype.or_else(stored).unwrap_or(WeightType::F32)
    }

    /// Returns the name of the model, which is the name of the file.
    pub(super) fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}
