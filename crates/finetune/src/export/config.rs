//! `config.json` of an exported model.

use serde_json::{Map, Value, json};

use super::{ExportError, WeightType};
use crate::config::{ModelConfig, RopeScaling, SlidingWindow, Yarn};
use crate::error::Result;
use crate::hub::{HubError, ModelDirectory};
use crate::json_file::read_json;

/// The context length that is claimed for a model without a base. RoPE itself has no limit.
pub(super) const POSITIONS: usize = 2048;

/// The architecture of a model, by the parts that distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    /// Llama with a sliding window in every layer.
    Mistral,
    Qwen2,
    Qwen3,
}

impl Architecture {
    pub(crate) fn of(model: &ModelConfig) -> Result<Self, ExportError> {
        let first_windowed = model.sliding_window.map(|window| window.first_layer);
        let not_expressible = |what: &str, remedy| {
            let format = "a model directory";
            Err(ExportError::NotExpressible { format, what: what.to_owned(), remedy })
        };
        match (model.qkv_bias, model.qk_norm, first_windowed) {
            (false, false, None) => Ok(Self::Llama),
            (false, false, Some(0)) => Ok(Self::Mistral),
            (false, false, Some(_)) => not_expressible(
                "a sliding window in later layers without biases and q/k norm",
                "no supported architecture has it",
            ),
            (true, false, _) => Ok(Self::Qwen2),
            (false, true, _) => Ok(Self::Qwen3),
            (true, true, _) => not_expressible(
                "biases and q/k norm in one model",
                "no supported architecture has both",
            ),
        }
    }

    /// Returns the architecture of llama.cpp, which has no windows and calls Mistral llama.
    pub(super) fn of_gguf(model: &ModelConfig) -> Result<Self, ExportError> {
        Self::of(&ModelConfig { sliding_window: None, ..*model })
    }

    /// The name in `config.json`, which GGUF uses, too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The class of `transformers`.
    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
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
    if let Some(scaling) = model.rope_scaling {
        config["rope_scaling"] = rope_scaling(scaling);
    }
    if let Some(SlidingWindow { size, first_layer }) = model.sliding_window {
        config["sliding_window"] = json!(size);
        config["use_sliding_window"] = json!(true);
        config["max_window_layers"] = json!(first_layer);
    }
    Ok(config)
}

fn rope_scaling(scaling: RopeScaling) -> Value {
    match scaling {
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
        let window = |first_layer| Some(SlidingWindow { size: 8, first_layer });
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
                let SlidingWindow { size, first_layer } = window;
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
