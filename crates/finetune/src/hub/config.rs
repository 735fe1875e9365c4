//! `config.json` of Hugging Face: the dimensions and the parts of a model.
//!
//! A field with an unsupported value is an error, so that no model is trained as if it were
//! another. Defaults are as in the class of the architecture in `transformers`.

use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::HubError;
use super::rope::{Context, Rope, scaling};
use crate::config::{ModelConfig, RopeScaling, SlidingWindow};
use crate::error::Result;

/// Default of `rope_theta`.
const DEFAULT_THETA: f64 = 10_000.0;
/// Default of `rope_theta` of SmolLM3.
const SMOLLM3_THETA: f64 = 2_000_000.0;
/// Default of `rms_norm_eps`.
const DEFAULT_EPS: f32 = 1e-6;
/// Default of `rms_norm_eps` of Phi-3.
const PHI3_EPS: f32 = 1e-5;
/// Default of `no_rope_layer_interval`.
const DEFAULT_NO_ROPE_INTERVAL: usize = 4;
/// The supported values of `model_type`.
const TYPES: [&str; 6] = ["qwen2", "qwen3", "llama", "mistral", "phi3", "smollm3"];
/// They, for messages.
const SUPPORTED_TYPES: &str = "qwen2, qwen3, llama, mistral, phi3 or smollm3";
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
    rms_norm_eps: Option<f32>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    /// Base and scaling together, as newer versions of `transformers` write them.
    rope_parameters: Option<Rope>,
    tie_word_embeddings: Option<bool>,
    #[serde(default = "default_act")]
    hidden_act: String,
    max_position_embeddings: Option<usize>,
    original_max_position_embeddings: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    /// `null` for none.
    #[serde(default, deserialize_with = "present")]
    sliding_window: Option<Option<u32>>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    partial_rotary_factor: Option<f64>,
    no_rope_layers: Option<Vec<u8>>,
    no_rope_layer_interval: Option<usize>,
    quantization_config: Option<Value>,
}

/// Tells a field that is `null` from one that is missing.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

fn default_act() -> String {
    "silu".to_owned()
}

/// Parses `text`, the file `path`. Returns the model and its number of positions.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(ModelConfig, Option<usize>)> {
    let raw: Raw = serde_json::from_slice(text).map_err(|error| HubError::json(path, error))?;
    let unsupported = |(field, value, supported)| {
        let path = path.to_owned();
        HubError::Unsupported { path, field, value, supported }
    };
    supported(&raw).map_err(unsupported)?;
    let is = |model_type: &str| raw.model_type == model_type;
    let kv_heads = match raw.num_key_value_heads {
        Some(heads) => heads,
        None if is("llama") || is("phi3") => raw.num_attention_heads,
        None => return Err(HubError::json(path, "num_key_value_heads is missing").into()),
    };
    let rope = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref());
    let positions = raw.max_position_embeddings;
    let context = Context { positions, original: raw.original_max_position_embeddings };
    let rope_scaling = match rope {
        Some(rope) => scaling((path, &raw.model_type), rope, context)?,
        None => None,
    };
    let theta = raw.rope_parameters.as_ref().and_then(|rope| rope.rope_theta).or(raw.rope_theta);
    let default_theta = if is("smollm3") { SMOLLM3_THETA } else { DEFAULT_THETA };
    let model = ModelConfig {
        vocab: raw.vocab_size,
        hidden: raw.hidden_size,
        layers: raw.num_hidden_layers,
        intermediate: raw.intermediate_size,
        heads: raw.num_attention_heads,
        kv_heads,
        head_dim: raw.head_dim.or(is("qwen3").then_some(128)),
        qkv_bias: is("qwen2") || raw.attention_bias,
        o_bias: !is("qwen2") && raw.attention_bias,
        mlp_bias: raw.mlp_bias,
        qk_norm: is("qwen3"),
        tied: raw.tie_word_embeddings.unwrap_or(is("smollm3")),
        rope_theta: theta.unwrap_or(default_theta),
        rope_scaling,
        rotary_dim: None,
        no_rope_interval: no_rope_interval(&raw).map_err(unsupported)?,
        rms_norm_eps: raw.rms_norm_eps.unwrap_or(if is("phi3") { PHI3_EPS } else { DEFAULT_EPS }),
        sliding_window: sliding_window(&raw).map_err(unsupported)?,
        fused: is("phi3"),
    };
    let part = raw.rotary_part();
    let rotary_dim = (part != 1.0).then(|| (model.head_dim() as f64 * part) as usize);
    let model = ModelConfig { rotary_dim, ..model };
    model.validate()?;
    // The frequencies of dynamic scaling are for sequences beyond the context in pretraining.
    let positions = match rope_scaling {
        Some(RopeScaling::Dynamic { factor, original }) => Some((factor * original) as usize),
        _ => positions,
    };
    Ok((model, positions))
}

impl Raw {
    /// The part of each head that RoPE rotates.
    fn rotary_part(&self) -> f64 {
        let in_rope = |rope: &Option<Rope>| rope.as_ref().and_then(|it| it.partial_rotary_factor);
        let nested = in_rope(&self.rope_parameters).or(in_rope(&self.rope_scaling));
        nested.or(self.partial_rotary_factor).unwrap_or(1.0)
    }
}

/// Returns the distance of layers without RoPE. `no_rope_layers` has 0 for each of them.
fn no_rope_interval(raw: &Raw) -> Result<Option<usize>, Refusal> {
    if raw.model_type != "smollm3" {
        return Ok(None);
    }
    let interval = match &raw.no_rope_layers {
        None => raw.no_rope_layer_interval.unwrap_or(DEFAULT_NO_ROPE_INTERVAL),
        Some(layers) => match layers.iter().position(|rotates| *rotates == 0) {
            None => return Ok(None),
            Some(first) => {
                let repeats = |(at, rotates): (usize, &u8)| {
                    (*rotates == 0) == (at + 1).is_multiple_of(first + 1)
                };
                if !layers.iter().enumerate().all(repeats) || layers.len() < raw.num_hidden_layers {
                    let supported = "0 for layers at equal distances, for example every fourth,";
                    return Err(("no_rope_layers", format!("{layers:?}"), supported));
                }
                first + 1
            }
        },
    };
    Ok(Some(interval).filter(|interval| *interval == 0 || *interval <= raw.num_hidden_layers))
}

/// A field, its value, and the supported one.
type Refusal = (&'static str, String, &'static str);

/// Returns the sliding window. Qwen switches it on, and only for later layers; Mistral and Phi-3
/// have it in every layer; Llama has none. `layer_types`, in newer files, says it for each layer.
fn sliding_window(raw: &Raw) -> Result<Option<SlidingWindow>, Refusal> {
    const FIELD: &str = "layer_types";
    const FULL: &str = "full_attention";
    const SLIDING: &str = "sliding_attention";
    let layers = raw.num_hidden_layers;
    let (switched_on, first_layer) = match raw.model_type.as_str() {
        "mistral" | "phi3" => (true, 0),
        "llama" | "smollm3" => (false, 0),
        _ => (raw.use_sliding_window, raw.max_window_layers.unwrap_or(DEFAULT_WINDOW_LAYERS)),
    };
    let size = raw.sliding_window.unwrap_or(default_window(raw)).filter(|_| switched_on);
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

/// The window of a file without `sliding_window`.
fn default_window(raw: &Raw) -> Option<u32> {
    (raw.model_type != "phi3").then_some(4096)
}

/// Checks that every other value is supported.
fn supported(raw: &Raw) -> Result<(), Refusal> {
    let refuse =
        |field, value: &dyn ToString, supported| Err((field, value.to_string(), supported));
    if ["gemma2", "gemma3", "gemma3_text"].contains(&raw.model_type.as_str()) {
        let value = format!("{}, which needs GeGLU and norms after each block", raw.model_type);
        let value = match raw.model_type.as_str() {
            "gemma2" => format!("{value}, and soft-capping of attention and logits"),
            _ => value,
        };
        return refuse("model_type", &value, SUPPORTED_TYPES);
    }
    if !TYPES.contains(&raw.model_type.as_str()) {
        return refuse("model_type", &raw.model_type, SUPPORTED_TYPES);
    }
    if raw.hidden_act != "silu" {
        return refuse("hidden_act", &raw.hidden_act, "silu");
    }
    let is = |types: &[&str]| types.contains(&raw.model_type.as_str());
    // The classes of the others ignore these options: their weights decide.
    if raw.attention_bias && !is(&["qwen2", "qwen3", "llama", "smollm3"]) {
        return refuse("attention_bias", &true, "false");
    }
    if raw.mlp_bias && !is(&["llama", "smollm3"]) {
        return refuse("mlp_bias", &true, "false");
    }
    let part = raw.rotary_part();
    if part != 1.0 && !is(&["phi3"]) {
        return refuse("partial_rotary_factor", &part, "1");
    }
    if !(part > 0.0 && part <= 1.0) {
        return refuse("partial_rotary_factor", &part, "a part above 0 and up to 1");
    }
    if raw.use_sliding_window && is(&["smollm3"]) {
        return refuse("use_sliding_window", &true, "false");
    }
    if let Some(quantization) = &raw.quantization_config {
        return refuse("quantization_config", quantization, "a model that is not quantized");
    }
    Ok(())
}
