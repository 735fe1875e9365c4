//! Embedding lookup and the gradient of the table.
//!
//! Block (t, j) handles the j-th group of columns of position t, four columns per thread.

use crate::parameters::parameters;
use crate::{Any, Signature};

parameters! {
    /// The parameters of [`EMBEDDING`] and [`EMBEDDING_BF16`].
    pub struct EmbeddingParameters {
        /// `positions` tokens, read.
        tokens: pointer<u32>,
        /// `vocab × hidden` elements, read.
        table: pointer<Any>,
        /// `positions × hidden` elements, written.
        out: pointer<f32>,
        /// Number of tokens.
        positions: u32,
        /// Elements in a row.
        hidden: u32,
        /// Rows of the table.
        vocab: u32,
        /// The scale of the rows.
        scale: f32,
    }
}

parameters! {
    /// The parameters of [`EMBEDDING_BACKWARD`].
    pub struct EmbeddingBackwardParameters {
        /// `positions` tokens, read.
        tokens: pointer<u32>,
        /// `positions × hidden` elements, read.
        grad_out: pointer<f32>,
        /// `vocab × hidden` elements, added to.
        grad_table: pointer<f32>,
        /// Number of tokens.
        positions: u32,
        /// Elements in a row.
        hidden: u32,
        /// Rows of the table.
        vocab: u32,
        /// The scale of the rows.
        scale: f32,
    }
}

/// Lookup in a table in f32.
pub const EMBEDDING: Signature = Signature {
    image: "embedding",
    parameters: EmbeddingParameters::<()>::LIST,
    entries: &["embedding"],
};

/// Lookup in a table in bf16.
pub const EMBEDDING_BF16: Signature = Signature { entries: &["embedding_bf16"], ..EMBEDDING };

/// The gradient of the table.
pub const EMBEDDING_BACKWARD: Signature = Signature {
    image: "embedding_backward",
    parameters: EmbeddingBackwardParameters::<()>::LIST,
    entries: &["embedding_backward"],
};
