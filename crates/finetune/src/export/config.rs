//! `config.json` of an exported model.

use serde_json::{Map, Value, json};

use super::{ExportError, WeightType};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::Result;
use crate::hub::{HubError, ModelDirectory};
use crate::json_file::read_json;

/// The context length that is claimed for a model without a base. RoPE itself has no limit.
pub(super) const POSITIONS: usize = 2048;

/// The architecture of a model, by the parts that distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
}

impl Architecture {
    pub(crate) fn of(model: &ModelConfig) -> Result<Self, ExportError> {
        match (model.qkv_bias, model.qk_norm) {
            (false, false) => Ok(Self::Llama),
            (true, false) => Ok(Self::Qwen2),
            (false, true) => Ok(Self::Qwen3),
            (true, true) => Err(ExportError::NotExpressible {
                format: "a model directory",
                what: "biases and q/k norm in one model".to_owned(),
                remedy: "no supported architecture has both",
            }),
        }
    }

    /// The name in `config.json`, which GGUF uses, too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The class of `transformers`.
    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
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
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": null,
        "head_dim": model.head_dim(),
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "initializer_range": 0.02,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": POSITIONS,
        "mlp_bias": false,
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
    if let Some(RopeScaling::Llama3 { factor, low, high, original }) = model.rope_scaling {
        config["rope_scaling"] = json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original,
        });
    }
    Ok(config)
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
