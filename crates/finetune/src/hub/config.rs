//! `config.json` of Hugging Face: the dimensions and the parts of a model.
//!
//! A field with an unsupported value is an error, so that no model is trained as if it were
//! another. Defaults are as in the class of the architecture in `transformers`.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::error::HubError;
use crate::config::{ModelConfig, RopeScaling, SlidingWindow, Yarn};
use crate::error::Result;

/// Default of `rope_theta`.
const DEFAULT_THETA: f64 = 10_000.0;
/// The context in pretraining, in the scaling of RoPE.
const ORIGINAL: &str = "original_max_position_embeddings";
/// Default of `max_window_layers`.
const DEFAULT_WINDOW_LAYERS: usize = 28;

/// The fields of `config.json` that are read.
#[derive(Debug, Deserialize)]
struct Raw {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default = "default_eps")]
    rms_norm_eps: f32,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    /// Base and scaling together, as newer versions of `transformers` write them.
    rope_parameters: Option<Rope>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default = "default_act")]
    hidden_act: String,
    max_position_embeddings: Option<usize>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    /// `null` for none.
    #[serde(default = "default_window")]
    sliding_window: Option<u32>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    partial_rotary_factor: Option<f64>,
    quantization_config: Option<Value>,
}

fn default_eps() -> f32 {
    1e-6
}

fn default_window() -> Option<u32> {
    Some(4096)
}

fn default_act() -> String {
    "silu".to_owned()
}

#[derive(Debug, Deserialize)]
struct Rope {
    rope_type: Option<String>,
    /// The name of `rope_type` in older versions; some files have both.
    #[serde(rename = "type")]
    kind: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    partial_rotary_factor: Option<f64>,
}

/// Parses `text`, the file `path`. Returns the model and its number of positions.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(ModelConfig, Option<usize>)> {
    let raw: Raw = serde_json::from_slice(text).map_err(|error| HubError::json(path, error))?;
    let unsupported = |(field, value, supported)| {
        let path = path.to_owned();
        HubError::Unsupported { path, field, value, supported }
    };
    supported(&raw).map_err(unsupported)?;
    let qwen3 = raw.model_type == "qwen3";
    let kv_heads = match raw.num_key_value_heads {
        Some(heads) => heads,
        None if raw.model_type == "llama" => raw.num_attention_heads,
        None => return Err(HubError::json(path, "num_key_value_heads is missing").into()),
    };
    let rope = raw.rope_parameters.as_ref();
    let theta = rope.and_then(|rope| rope.rope_theta).or(raw.rope_theta);
    let model = ModelConfig {
        vocab: raw.vocab_size,
        hidden: raw.hidden_size,
        layers: raw.num_hidden_layers,
        intermediate: raw.intermediate_size,
        heads: raw.num_attention_heads,
        kv_heads,
        head_dim: raw.head_dim.or(qwen3.then_some(128)),
        qkv_bias: raw.model_type == "qwen2",
        qk_norm: qwen3,
        tied: raw.tie_word_embeddings,
        rope_theta: theta.unwrap_or(DEFAULT_THETA),
        rope_scaling: scaling(path, &raw)?,
        rms_norm_eps: raw.rms_norm_eps,
        sliding_window: sliding_window(&raw).map_err(unsupported)?,
    };
    model.validate()?;
    Ok((model, raw.max_position_embeddings))
}

/// A field, its value, and the supported one.
type Refusal = (&'static str, String, &'static str);

/// Returns the sliding window. Qwen switches it on, and only for later layers; Mistral has it in
/// every layer; Llama has none. `layer_types`, in newer files, says it for each layer.
fn sliding_window(raw: &Raw) -> Result<Option<SlidingWindow>, Refusal> {
    const FIELD: &str = "layer_types";
    const FULL: &str = "full_attention";
    const SLIDING: &str = "sliding_attention";
    let layers = raw.num_hidden_layers;
    let (switched_on, first_layer) = match raw.model_type.as_str() {
        "mistral" => (true, 0),
        "llama" => (false, 0),
        _ => (raw.use_sliding_window, raw.max_window_layers.unwrap_or(DEFAULT_WINDOW_LAYERS)),
    };
    let size = raw.sliding_window.filter(|_| switched_on);
    let first_layer = match &raw.layer_types {
        None => first_layer,
        Some(types) => {
            let known = |kind: &String| kind == FULL || (kind == SLIDING && size.is_some());
            if let Some(kind) = types.iter().find(|kind| !known(kind)) {
                let supported = "full_attention, or sliding_attention with a sliding window";
                return Err((FIELD, kind.clone(), supported));
            }
            let full = types.iter().take_while(|kind| *kind == FULL).count();
            let alternates = types.iter().skip(full).any(|kind| kind == FULL);
            if alternates || types.len() != layers {
                let supported = "a kind for each layer, full_attention before sliding_attention";
                return Err((FIELD, types.join(", "), supported));
            }
            full
        }
    };
    let window = size.map(|size| SlidingWindow { size, first_layer });
    Ok(window.filter(|window| window.first_layer < layers))
}

/// Checks that every other value is supported.
fn supported(raw: &Raw) -> Result<(), Refusal> {
    let refuse =
        |field, value: &dyn ToString, supported| Err((field, value.to_string(), supported));
    if !["qwen2", "qwen3", "llama", "mistral"].contains(&raw.model_type.as_str()) {
        return refuse("model_type", &raw.model_type, "qwen2, qwen3, llama or mistral");
    }
    if raw.hidden_act != "silu" {
        return refuse("hidden_act", &raw.hidden_act, "silu");
    }
    if raw.attention_bias && raw.model_type != "qwen2" {
        return refuse("attention_bias", &true, "false");
    }
    if raw.mlp_bias {
        return refuse("mlp_bias", &true, "false");
    }
    let in_rope = raw.rope_parameters.as_ref().and_then(|rope| rope.partial_rotary_factor);
    if let Some(part) = raw.partial_rotary_factor.or(in_rope).filter(|part| *part != 1.0) {
        return refuse("partial_rotary_factor", &part, "1");
    }
    if let Some(quantization) = &raw.quantization_config {
        return refuse("quantization_config", quantization, "a model that is not quantized");
    }
    Ok(())
}

fn scaling(path: &Path, raw: &Raw) -> Result<Option<RopeScaling>, HubError> {
    let rope = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref());
    let Some(rope) = rope else { return Ok(None) };
    let kind = rope.rope_type.as_ref().or(rope.kind.as_ref());
    let kind = kind.map_or("default", String::as_str);
    let need = |value: Option<f64>, name: &str| {
        value.ok_or_else(|| HubError::json(path, format!("{kind} rope scaling needs {name}")))
    };
    match kind {
        // Dynamic frequencies change only beyond `max_position_embeddings`, where no run goes.
        "default" | "dynamic" => Ok(None),
        "linear" => Ok(Some(RopeScaling::Linear { factor: need(rope.factor, "factor")? })),
        "llama3" => Ok(Some(RopeScaling::Llama3 {
            factor: need(rope.factor, "factor")?,
            low: need(rope.low_freq_factor, "low_freq_factor")?,
            high: need(rope.high_freq_factor, "high_freq_factor")?,
            original: need(rope.original_max_position_embeddings, ORIGINAL)?,
        })),
        "yarn" => {
            let context = raw.max_position_embeddings.map(|positions| positions as f64);
            let original = need(rope.original_max_position_embeddings.or(context), ORIGINAL)?;
            let factor = rope.factor.or(context.map(|context| context / original));
            let factor = need(factor, "factor")?;
            Ok(Some(RopeScaling::Yarn(Yarn {
                factor,
                original,
                fast: rope.beta_fast.unwrap_or(Yarn::FAST),
                slow: rope.beta_slow.unwrap_or(Yarn::SLOW),
                attention: rope.attention_factor.unwrap_or_else(|| attention(rope, factor)),
                truncate: rope.truncate.unwrap_or(true),
            })))
        }
        _ => Err(HubError::Unsupported {
            path: path.to_owned(),
            field: "rope_type",
            value: kind.to_owned(),
            supported: "default, linear, dynamic, yarn or llama3",
        }),
    }
}

/// The attention factor of YaRN by `mscale`, as DeepSeek sets it, or by its default.
fn attention(rope: &Rope, factor: f64) -> f64 {
    let set = |value: Option<f64>| value.filter(|value| *value != 0.0);
    match (set(rope.mscale), set(rope.mscale_all_dim)) {
        (Some(one), Some(all)) => Yarn::attention(factor, one) / Yarn::attention(factor, all),
        _ => Yarn::attention(factor, 1.0),
    }
}
