//! Writing a complete model: trained weights, or a base model with an adapter merged into it.
//!
//! [`ModelWeights`] returns each tensor of the model. A tensor with a LoRA update becomes
//! `W + scale · B · A`, computed in f64 in a fixed order and rounded once to the stored type.
//! [`write_model`] writes a directory in Hugging Face format, and [`write_gguf`] a file for
//! llama.cpp. Both appear under their final name only when they are complete.

mod architecture;
mod card;
mod config;
mod copied;
mod directory;
mod error;
mod gguf;
mod row;
mod tokenizer;
mod weights;

pub use copied::read_files_of;
pub use directory::{MAX_SHARD_BYTES, ModelOutput, Written, write_model};
pub use error::ExportError;
pub use gguf::{GgufOutput, write_gguf, write_gguf_adapter};
pub use row::WeightType;
pub use weights::{ModelWeights, ValuesOf};

/// The progress of a writer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Bytes that are done.
    pub done: u64,
    /// All bytes.
    pub total: u64,
    /// The next tensor; empty at the end.
    pub name: &'a str,
}

/// Receives the progress before each tensor and returns whether to continue.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress<'_>) -> bool;
