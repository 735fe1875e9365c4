//! The fields of `config.json`.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::rope::Rope;
use crate::error::Result;

/// The activation of Gemma.
pub(super) const GELU: &str = "gelu_pytorch_tanh";

/// A field, its value, and the supported one.
pub(super) type Refusal = (&'static str, String, &'static str);

/// The fields of `config.json` that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    pub(super) model_type: String,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_attention_heads: usize,
    pub(super) num_key_value_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
    pub(super) rms_norm_eps: Option<f32>,
    pub(super) rope_theta: Option<f64>,
    pub(super) rope_scaling: Option<Rope>,
    /// Base and scaling together, in files from newer versions of `transformers`.
    pub(super) rope_parameters: Option<Rope>,
    pub(super) tie_word_embeddings: Option<bool>,
    #[serde(default = "default_act")]
    pub(super) hidden_act: String,
    pub(super) max_position_embeddings: Option<usize>,
    pub(super) original_max_position_embeddings: Option<f64>,
    #[serde(default)]
    pub(super) attention_bias: bool,
    #[serde(default)]
    pub(super) mlp_bias: bool,
    #[serde(default)]
    pub(super) use_sliding_window: bool,
    /// `null` for none.
    #[serde(default, deserialize_with = "present")]
    pub(super) sliding_window: Option<Option<u32>>,
    pub(super) sliding_window_pattern: Option<usize>,
    pub(super) max_window_layers: Option<usize>,
    pub(super) layer_types: Option<Vec<String>>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) no_rope_layers: Option<Vec<u8>>,
    pub(super) no_rope_layer_interval: Option<usize>,
    pub(super) quantization_config: Option<Value>,
    /// Gemma reads this instead of `hidden_act`.
    #[serde(default = "default_activation")]
    pub(super) hidden_activation: String,
    pub(super) query_pre_attn_scalar: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    pub(super) attn_logit_softcapping: Option<Option<f32>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) final_logit_softcapping: Option<Option<f32>>,
    pub(super) rope_local_base_freq: Option<f64>,
    pub(super) use_bidirectional_attention: Option<bool>,
}

/// Distinguishes a field that is `null` from a missing field.
fn present<'de, D, T>(value: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(value).map(Some)
}

fn default_act() -> String {
    "silu".to_owned()
}

fn default_activation() -> String {
    GELU.to_owned()
}
