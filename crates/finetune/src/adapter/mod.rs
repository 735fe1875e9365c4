//! Adapters as PEFT writes and reads them: what LoRA trained, apart from its base model.
//!
//! An adapter is a directory with `adapter_config.json` and `adapter_model.safetensors`. A matrix
//! is named as in our [inventory](crate::parameters), behind `base_model.model.`:
//! `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` has the shape
//! `[rank, inputs]`, `lora_B` has `[outputs, rank]`, both in f32. Trained norms are what PEFT calls
//! `modules_to_save`: they are stored whole, behind the same prefix.
//!
//! [`write_adapter`] replaces an adapter at once or not at all. [`Adapter::open`] reads one, and
//! refuses what it cannot reproduce by the name of the option. [`merge`] adds an adapter to the
//! weights of its base model.
//!
//! Absent on purpose: DoRA, ranks that differ between layers, and formats of older releases that
//! are not safetensors.

mod config;
mod error;
mod merge;
mod read;
mod write;

pub use error::AdapterError;
pub use merge::{Merged, merge};
pub use read::Adapter;
pub use write::{AdapterOutput, write_adapter};

/// The file that says what the adapter is.
const CONFIG: &str = "adapter_config.json";
/// The file with its matrices.
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the name that a parameter has in the base model.
const PREFIX: &str = "base_model.model.";
/// The norms of a layer, as they are trained beside low-rank updates.
const NORMS: [&str; 2] = ["input_layernorm", "post_attention_layernorm"];
