//! `config.json` of an exported model.

use serde_json::{Map, Value, json};

use super::{ExportError, WeightType};
use crate::config::{GatedActivation, LongRope, ModelConfig, RopeScaling, SlidingWindow, Yarn};
use crate::error::Result;
use crate::hub::{HubError, ModelDirectory};
use crate::json_file::read_json;

/// The context length that is claimed for a model without a base. RoPE itself has no limit.
pub(super) const POSITIONS: usize = 2048;

/// The distance of layers without RoPE in llama.cpp.
const GGUF_NO_ROPE_INTERVAL: usize = 4;

/// Why a model cannot be written.
const NO_OTHER: &str = "no supported architecture has it";

/// The architecture of a model, by the parts that distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    /// Llama with a sliding window in every layer.
    Mistral,
    Phi3,
    Qwen2,
    Qwen3,
    /// Llama with layers without RoPE.
    SmolLm3,
    Gemma2,
    Gemma3,
}

impl Architecture {
    pub(crate) fn of(model: &ModelConfig) -> Result<Self, ExportError> {
        let ModelConfig { qkv_bias, o_bias, mlp_bias, qk_norm, .. } = *model;
        let first_windowed = model.sliding_window.map(|window| window.first_layer);
        let biased = qkv_bias || o_bias || mlp_bias;
        let refuse = |what: &str, remedy| {
            let format = "a model directory";
            Err(ExportError::NotExpressible { format, what: what.to_owned(), remedy })
        };
        if let Some(gemma) = Self::gemma(model) {
            return match gemma {
                Some(architecture) => Ok(architecture),
                None => refuse("some parts of Gemma in a model that differs from it", NO_OTHER),
            };
        }
        if model.sliding_window.is_some_and(|window| window.full_interval.is_some()) {
            return refuse(
                "layers without a window between others in a model that is no Gemma",
                NO_OTHER,
            );
        }
        if model.fused {
            return match (biased || qk_norm || model.no_rope_interval.is_some(), first_windowed) {
                (false, None | Some(0)) => Ok(Self::Phi3),
                _ => refuse("a model with fused projections that differs from Phi-3", NO_OTHER),
            };
        }
        if model.no_rope_interval.is_some() {
            let plain = !qk_norm && model.rotary_dim.is_none() && first_windowed.is_none();
            return match (plain, qkv_bias == o_bias) {
                (true, true) => Ok(Self::SmolLm3),
                _ => refuse("layers without RoPE in a model that differs from SmolLM3", NO_OTHER),
            };
        }
        match (qkv_bias, qk_norm, first_windowed) {
            _ if model.rotary_dim.is_some() => {
                refuse("a partly rotated head without fused projections", NO_OTHER)
            }
            (true, true, _) if !o_bias => {
                refuse("biases and q/k norm in one model", "no supported architecture has both")
            }
            (_, true, _) if qkv_bias == o_bias && !mlp_bias => Ok(Self::Qwen3),
            (true, false, _) if !o_bias && !mlp_bias => Ok(Self::Qwen2),
            (_, false, None) if qkv_bias == o_bias => Ok(Self::Llama),
            (false, false, Some(0)) if !biased => Ok(Self::Mistral),
            (_, false, Some(_)) if !biased => {
                refuse("a sliding window in later layers without biases and q/k norm", NO_OTHER)
            }
            _ => refuse("these biases with these norms and windows", NO_OTHER),
        }
    }

    /// Returns `None` for a model without any part of Gemma, and `Some(None)` for one that has some
    /// of them but is no Gemma.
    fn gemma(model: &ModelConfig) -> Option<Option<Self>> {
        let plain = ModelConfig {
            local_rope_theta: None,
            query_pre_attn_scalar: None,
            attention_softcap: None,
            logit_softcap: None,
            activation: GatedActivation::Silu,
            post_norms: false,
            unit_offset_norms: false,
            scaled_embedding: false,
            ..*model
        };
        if plain == *model {
            return None;
        }
        let ModelConfig { post_norms, unit_offset_norms, scaled_embedding, .. } = *model;
        let shared = post_norms && unit_offset_norms && scaled_embedding;
        let others = model.qkv_bias || model.o_bias || model.mlp_bias || model.fused;
        let others = others || model.rotary_dim.is_some() || model.no_rope_interval.is_some();
        if !shared || others || model.activation != GatedActivation::GeluTanh {
            return Some(None);
        }
        Some(match (model.qk_norm, model.local_rope_theta) {
            (true, _) => Some(Self::Gemma3),
            (false, None) => Some(Self::Gemma2),
            (false, Some(_)) => None,
        })
    }

    /// Returns the architecture of llama.cpp, which has no windows and calls Mistral llama.
    ///
    /// # Errors
    /// [`ExportError::NotExpressible`] for Gemma, for biases of the MLP, and for a SmolLM3 with
    /// biases or with other layers without RoPE than every fourth.
    pub(super) fn of_gguf(model: &ModelConfig) -> Result<Self, ExportError> {
        let architecture = Self::of(&ModelConfig { sliding_window: None, ..*model })?;
        let what = match (architecture, model.no_rope_interval) {
            (Self::Gemma2 | Self::Gemma3, _) => "Gemma".to_owned(),
            _ if model.mlp_bias => "biases of the MLP".to_owned(),
            (Self::SmolLm3, _) if model.o_bias => "biases of SmolLM3".to_owned(),
            (Self::SmolLm3, Some(interval)) if interval != GGUF_NO_ROPE_INTERVAL => {
                format!("layers without RoPE at a distance of {interval}")
            }
            _ => return Ok(architecture),
        };
        let remedy = "use a Hugging Face directory";
        Err(ExportError::NotExpressible { format: super::gguf::FORMAT, what, remedy })
    }

    /// The name in `config.json`, which GGUF uses, too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Phi3 => "phi3",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::SmolLm3 => "smollm3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3_text",
        }
    }

    /// The class of `transformers`.
    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Phi3 => "Phi3ForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::SmolLm3 => "SmolLM3ForCausalLM",
            Self::Gemma2 => "Gemma2ForCausalLM",
            Self::Gemma3 => "Gemma3ForCausalLM",
        }
    }
}

/// Returns `config.json` of `base` with another dtype; it stays if `dtype` is `None`.
pub(super) fn of_base(base: &ModelDirectory, dtype: Option<WeightType>) -> Result<Value> {
    let path = base.path().join("config.json");
    let text = read_json(&path).map_err(|source| HubError::Read { path: path.clone(), source })?;
    let mut config: Map<String, Value> = serde_json::from_slice(&text)
        .map_err(|error| HubError::Json { path, why: error.to_string() })?;
    if let Some(dtype) = dtype {
        // Newer versions of `transformers` write `dtype` and read both.
        let key = if config.contains_key("dtype") { "dtype" } else { "torch_dtype" };
        config.insert(key.to_owned(), json!(torch(dtype)));
    }
    Ok(Value::Object(config))
}

/// Returns `config.json` of a model without a base.
pub(super) fn of_model(model: &ModelConfig, dtype: WeightType) -> Result<Value, ExportError> {
    let architecture = Architecture::of(model)?;
    let mut config = json!({
        "architectures": [architecture.class()],
        "attention_bias": model.o_bias,
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": null,
        "head_dim": model.head_dim(),
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "initializer_range": 0.02,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": positions(model),
        "mlp_bias": model.mlp_bias,
        "model_type": architecture.name(),
        "num_attention_heads": model.heads,
        "num_hidden_layers": model.layers,
        "num_key_value_heads": model.kv_heads,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tied,
        "torch_dtype": torch(dtype),
        "use_cache": true,
        "vocab_size": model.vocab,
    });
    if let Some(scaling) = model.rope_scaling {
        config["rope_scaling"] = rope_scaling(scaling);
    }
    if let Some(RopeScaling::LongRope(long)) = model.rope_scaling {
        config["original_max_position_embeddings"] = json!(long.original as u64);
    }
    if let Some(rotary) = model.rotary_dim {
        config["partial_rotary_factor"] = json!(rotary as f64 / model.head_dim() as f64);
    }
    if let Some(interval) = model.no_rope_interval {
        config["no_rope_layer_interval"] = json!(interval);
    }
    if architecture == Architecture::Phi3 {
        // Its class computes the width of a head from others, and pads with a token by default.
        config["sliding_window"] = Value::Null;
        config["pad_token_id"] = Value::Null;
    }
    if matches!(architecture, Architecture::Gemma2 | Architecture::Gemma3) {
        add_gemma(&mut config, model);
    } else if let Some(SlidingWindow { size, first_layer, .. }) = model.sliding_window {
        config["sliding_window"] = json!(size);
        config["use_sliding_window"] = json!(true);
        config["max_window_layers"] = json!(first_layer);
    }
    Ok(config)
}

fn add_gemma(config: &mut Value, model: &ModelConfig) {
    let scalar = model.query_pre_attn_scalar.unwrap_or(model.head_dim() as f64);
    for key in ["hidden_act", "hidden_activation"] {
        config[key] = json!("gelu_pytorch_tanh");
    }
    config["query_pre_attn_scalar"] = match scalar.fract() == 0.0 {
        true => json!(scalar as u64),
        false => json!(scalar),
    };
    config["attn_logit_softcapping"] = json!(model.attention_softcap);
    config["final_logit_softcapping"] = json!(model.logit_softcap);
    if model.qk_norm {
        config["rope_local_base_freq"] = json!(model.local_rope_theta.unwrap_or(model.rope_theta));
    }
    let kind = |number| match model.sliding_window.is_some_and(|window| window.covers(number)) {
        true => "sliding_attention",
        false => "full_attention",
    };
    config["layer_types"] = (0..model.layers).map(kind).collect();
    if let Some(window) = model.sliding_window {
        config["sliding_window"] = json!(window.size);
    }
}

/// The context length that is claimed.
fn positions(model: &ModelConfig) -> usize {
    match model.rope_scaling {
        Some(RopeScaling::Dynamic { original, .. }) => original as usize,
        _ => POSITIONS,
    }
}

fn rope_scaling(scaling: RopeScaling) -> Value {
    match scaling {
        RopeScaling::Dynamic { factor, .. } => json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::LongRope(LongRope { short, long, original, attention }) => json!({
            "rope_type": "longrope", "short_factor": Vec::from(short),
            "long_factor": Vec::from(long), "original_max_position_embeddings": original,
            "attention_factor": attention,
        }),
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original,
        }),
        RopeScaling::Yarn(Yarn { factor, original, fast, slow, attention, truncate }) => json!({
            "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
            "beta_fast": fast, "beta_slow": slow, "attention_factor": attention,
            "truncate": truncate,
        }),
    }
}

/// The name of a dtype in PyTorch.
fn torch(dtype: WeightType) -> &'static str {
    match dtype {
        WeightType::F32 => "float32",
        WeightType::F16 => "float16",
        WeightType::Bf16 => "bfloat16",
        WeightType::Q8_0 => "int8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn a_window_is_written_as_its_architecture_reads_it() {
        let window = |first_layer| Some(SlidingWindow::new(8, first_layer));
        let model = |qkv_bias, qk_norm, sliding_window| ModelConfig {
            qkv_bias,
            qk_norm,
            sliding_window,
            ..Preset::Tiny.model()
        };
        for (model, architecture) in [
            (model(false, false, None), Architecture::Llama),
            (model(false, false, window(0)), Architecture::Mistral),
            (model(true, false, window(1)), Architecture::Qwen2),
            (model(false, true, window(0)), Architecture::Qwen3),
        ] {
            assert_eq!(Architecture::of(&model).unwrap(), architecture);
            let config = of_model(&model, WeightType::F32).unwrap();
            let written = model.sliding_window.map(|window| {
                let SlidingWindow { size, first_layer, .. } = window;
                [json!(size), json!(true), json!(first_layer)]
            });
            let keys = ["sliding_window", "use_sliding_window", "max_window_layers"];
            let found = keys.map(|key| config.get(key).cloned().unwrap_or_default());
            assert_eq!(found, written.unwrap_or_default());
        }
        let error = Architecture::of(&model(false, false, window(1))).unwrap_err().to_string();
        assert!(error.contains("sliding window"), "{error}");
    }
}
