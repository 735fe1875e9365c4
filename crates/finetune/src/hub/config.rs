//! `config.json` of Hugging Face models.
//!
//! A field with an unsupported value is an error, so that no model is silently treated as a
//! different one. Defaults are as in the architecture's class in `transformers`.

use std::path::Path;

use super::error::HubError;
use super::raw::{GELU, Raw, Refusal};
use super::rope::{Context, Rope, scaling};
use super::window::sliding_window;
use crate::config::{GatedActivation, ModelConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::json_file::parse_json;

/// Default of `rope_theta`.
const DEFAULT_THETA: f64 = 10_000.0;
/// Default of `rope_theta` of SmolLM3.
const SMOLLM3_THETA: f64 = 2_000_000.0;
/// Default of `head_dim` of Qwen3.
const QWEN3_HEAD_DIM: usize = 128;
/// Default of `rms_norm_eps`.
const DEFAULT_EPS: f32 = 1e-6;
/// Default of `rms_norm_eps` of Phi-3.
const PHI3_EPS: f32 = 1e-5;
/// Default of `no_rope_layer_interval`.
const DEFAULT_NO_ROPE_INTERVAL: usize = 4;
/// The supported values of `model_type`, as in messages.
const SUPPORTED_TYPES: &str = "qwen2, qwen3, llama, mistral, phi3, smollm3, gemma2 or gemma3_text";
/// Default of `head_dim` of Gemma, and of `query_pre_attn_scalar`.
const GEMMA_HEAD_DIM: usize = 256;
/// Defaults of Gemma 2's `attn_logit_softcapping` and `final_logit_softcapping`.
const GEMMA2_SOFTCAPS: [f32; 2] = [50.0, 30.0];
/// Defaults of Gemma 3's `rope_theta` and `rope_local_base_freq`.
const GEMMA3_THETAS: [f64; 2] = [1_000_000.0, 10_000.0];

/// Parses `text`, the file `path`. Returns the model and its number of positions.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(ModelConfig, Option<usize>)> {
    let raw: Raw = parse_json(text).map_err(|error| HubError::json(path, error))?;
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
    let rope = raw.global_rope();
    let gemma = raw.is_gemma();
    let positions = raw.max_position_embeddings;
    let context = Context { positions, original: raw.original_max_position_embeddings };
    let rope_scaling = match rope {
        Some(rope) => scaling(path, &raw.model_type, rope, context)?,
        None => None,
    };
    let theta = rope.and_then(|rope| rope.rope_theta).or(raw.rope_theta);
    let default_theta = match raw.model_type.as_str() {
        "smollm3" => SMOLLM3_THETA,
        "gemma3_text" => GEMMA3_THETAS[0],
        _ => DEFAULT_THETA,
    };
    let default_head = if gemma { GEMMA_HEAD_DIM } else { QWEN3_HEAD_DIM };
    let [attention_softcap, logit_softcap] = raw.softcaps();
    let model = ModelConfig {
        vocab: raw.vocab_size,
        hidden: raw.hidden_size,
        layers: raw.num_hidden_layers,
        intermediate: raw.intermediate_size,
        heads: raw.num_attention_heads,
        kv_heads,
        head_dim: raw.head_dim.or((gemma || is("qwen3")).then_some(default_head)),
        qkv_bias: is("qwen2") || raw.attention_bias,
        o_bias: !is("qwen2") && raw.attention_bias,
        mlp_bias: raw.mlp_bias,
        qk_norm: is("qwen3") || is("gemma3_text"),
        tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(gemma || is("smollm3")),
        rope_theta: theta.unwrap_or(default_theta),
        rope_scaling,
        rotary_dim: None,
        no_rope_interval: no_rope_interval(&raw).map_err(unsupported)?,
        rms_norm_eps: raw.rms_norm_eps.unwrap_or(if is("phi3") { PHI3_EPS } else { DEFAULT_EPS }),
        sliding_window: sliding_window(&raw).map_err(unsupported)?,
        local_rope_theta: raw.local_theta(),
        query_pre_attn_scalar: gemma
            .then(|| raw.query_pre_attn_scalar.unwrap_or(GEMMA_HEAD_DIM as f64)),
        attention_softcap,
        logit_softcap,
        activation: if gemma { GatedActivation::GeluTanh } else { GatedActivation::Silu },
        post_norms: gemma,
        unit_offset_norms: gemma,
        scaled_embedding: gemma,
        fused: is("phi3"),
    };
    let part = raw.rotary_part();
    let rotary_dim = (part != 1.0).then(|| (model.head_dim() as f64 * part) as usize);
    let model = ModelConfig { rotary_dim, ..model };
    model.validate().map_err(|error| in_file(path, error))?;
    if positions == Some(0) {
        return Err(HubError::json(path, "max_position_embeddings is 0").into());
    }
    // The frequencies of dynamic scaling are for sequences beyond the context in pretraining.
    let positions = match rope_scaling {
        Some(RopeScaling::Dynamic { factor, original_max_position_embeddings: original }) => {
            Some((factor * original) as usize)
        }
        _ => positions,
    };
    Ok((model, positions))
}

/// Fields of [`ModelConfig`] that have other names in the file.
const NAMES: [(&str, &str); 6] = [
    ("vocab", "vocab_size"),
    ("hidden", "hidden_size"),
    ("layers", "num_hidden_layers"),
    ("intermediate", "intermediate_size"),
    ("heads", "num_attention_heads"),
    ("kv_heads", "num_key_value_heads"),
];

/// Names the file and its field in the error of an invalid value.
fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::InvalidConfig { field, value, rule } => {
            let name = NAMES.iter().find(|(ours, _)| *ours == field).map_or(field, |names| names.1);
            HubError::json(path, format!("{name} is {value}, but it must be {rule}")).into()
        }
        other => other,
    }
}

impl Raw {
    fn is_gemma(&self) -> bool {
        ["gemma2", "gemma3_text"].contains(&self.model_type.as_str())
    }

    /// RoPE of layers without a window.
    fn global_rope(&self) -> Option<&Rope> {
        let nested = self.rope_parameters.as_ref().and_then(|rope| rope.full_attention.as_deref());
        nested.or(self.rope_parameters.as_ref()).or(self.rope_scaling.as_ref())
    }

    /// RoPE of layers with a window, if a file has it separately.
    fn local_rope(&self) -> Option<&Rope> {
        self.rope_parameters.as_ref().and_then(|rope| rope.sliding_attention.as_deref())
    }

    /// Returns the base of RoPE in layers with a window, if they have their own base.
    fn local_theta(&self) -> Option<f64> {
        if self.model_type != "gemma3_text" {
            return None;
        }
        let theta =
            self.local_rope().and_then(|rope| rope.rope_theta).or(self.rope_local_base_freq);
        Some(theta.unwrap_or(GEMMA3_THETAS[1]))
    }

    /// The caps of attention scores and of logits.
    fn softcaps(&self) -> [Option<f32>; 2] {
        let caps = [self.attn_logit_softcapping, self.final_logit_softcapping];
        match self.model_type.as_str() {
            "gemma2" => std::array::from_fn(|at| caps[at].unwrap_or(Some(GEMMA2_SOFTCAPS[at]))),
            "gemma3_text" => caps.map(Option::flatten),
            _ => [None; 2],
        }
    }

    /// The part of each head that RoPE rotates.
    fn rotary_part(&self) -> f64 {
        let in_rope = |rope: &Option<Rope>| rope.as_ref().and_then(|it| it.partial_rotary_factor);
        let nested = in_rope(&self.rope_parameters).or(in_rope(&self.rope_scaling));
        nested.or(self.partial_rotary_factor).unwrap_or(1.0)
    }
}

/// Returns the interval of layers without RoPE. `no_rope_layers` has 0 for each of them.
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

/// Checks that every other value is supported.
fn supported(raw: &Raw) -> Result<(), Refusal> {
    let refuse =
        |field, value: &dyn ToString, supported| Err((field, value.to_string(), supported));
    if raw.model_type == "gemma3" {
        let value = "gemma3, which also reads images";
        let supported = "gemma3_text, the type of its language model,";
        return refuse("model_type", &value, supported);
    }
    let mut types = SUPPORTED_TYPES.split(", ").flat_map(|types| types.split(" or "));
    if !types.any(|supported| supported == raw.model_type) {
        return refuse("model_type", &raw.model_type, SUPPORTED_TYPES);
    }
    if raw.is_gemma() {
        if raw.hidden_activation != GELU {
            return refuse("hidden_activation", &raw.hidden_activation, GELU);
        }
        let local = raw.local_rope().map_or("default", Rope::kind);
        if local != "default" {
            return refuse("sliding_attention", &local, "a RoPE without scaling");
        }
        if raw.use_bidirectional_attention == Some(true) {
            return refuse("use_bidirectional_attention", &true, "false");
        }
    } else if raw.hidden_act != "silu" {
        return refuse("hidden_act", &raw.hidden_act, "silu");
    }
    let is = |types: &[&str]| types.contains(&raw.model_type.as_str());
    // The classes of other architectures ignore these options; their weights decide.
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
