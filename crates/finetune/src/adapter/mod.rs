//! LoRA adapters in PEFT format: the trained matrices without the base model.
//!
//! An adapter is a directory with `adapter_config.json` and `adapter_model.safetensors`. A
//! matrix has its name in the [inventory](crate::parameters) with the prefix `base_model.model.`:
//! `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` has the shape
//! `[rank, inputs]`, and `lora_B` has `[outputs, rank]`, both in f32. DoRA adds
//! `lora_magnitude_vector`, `[outputs]`, without `.weight`. Trained norms, token embeddings
//! and output projection are stored in full, with the same prefix; PEFT lists them in
//! `modules_to_save`.
//!
//! [`write_adapter`] replaces an adapter atomically. [`Adapter::open`] reads an adapter; its error
//! names an option that is not supported. [`export`](crate::export) merges an adapter into the
//! weights of its base model.
//!
//! Ranks and alphas may differ between modules (`rank_pattern` and `alpha_pattern` of PEFT), and
//! only some layers may have updates (`layers_to_transform`).

mod blocks;
mod config;
mod error;
mod patterns;
mod read;
mod write;

pub use error::AdapterError;
pub use read::Adapter;
pub use write::{AdapterOutput, write_adapter};

/// The configuration of an adapter.
const CONFIG: &str = "adapter_config.json";
/// The matrices of an adapter.
const WEIGHTS: &str = "adapter_model.safetensors";
/// The prefix of PEFT before the name of a parameter in the base model.
const PREFIX: &str = "base_model.model.";
/// The norms of a layer, which can be trained with LoRA.
const NORMS: [&str; 2] = ["input_layernorm", "post_attention_layernorm"];
/// The last part of the name of DoRA's magnitudes.
const MAGNITUDES: &str = "lora_magnitude_vector";
/// The module of the token embeddings.
const EMBEDDING: &str = "embed_tokens";
/// The module of the output projection.
const HEAD: &str = "lm_head";
