//! `config.json` of an exported model.

use serde_json::{Map, Value, json};

use super::architecture::Architecture;
use super::{ExportError, WeightType};
use crate::config::{LongRope, ModelConfig, RopeScaling, SlidingWindow, Yarn};
use crate::error::Result;
use crate::hub::{HubError, ModelDirectory};

/// The context length that is written for a model without a base. RoPE itself has no limit.
pub(super) const POSITIONS: usize = 2048;

/// Returns `config.json` of `base` with `dtype`; `None` keeps the dtype.
pub(super) fn of_base(base: &ModelDirectory, dtype: Option<WeightType>) -> Result<Value> {
    let mut config: Map<String, Value> = serde_json::from_slice(base.config_text())
        .map_err(|error| HubError::json(&base.path().join("config.json"), error))?;
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
        "tie_word_embeddings": model.tie_word_embeddings,
        "torch_dtype": torch(dtype),
        "use_cache": true,
        "vocab_size": model.vocab,
    });
    if let Some(scaling) = model.rope_scaling {
        config["rope_scaling"] = rope_scaling(scaling);
    }
    if let Some(RopeScaling::LongRope(long)) = model.rope_scaling {
        config["original_max_position_embeddings"] =
            json!(long.original_max_position_embeddings as u64);
    }
    if let Some(rotary) = model.rotary_dim {
        config["partial_rotary_factor"] = json!(rotary as f64 / model.head_dim() as f64);
    }
    if let Some(interval) = model.no_rope_interval {
        config["no_rope_layer_interval"] = json!(interval);
    }
    if architecture == Architecture::Phi3 {
        // Its class computes the head dimension from other fields, and has a default padding token.
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

/// Returns the context length that is written.
fn positions(model: &ModelConfig) -> usize {
    match model.rope_scaling {
        Some(RopeScaling::Dynamic { original_max_position_embeddings: original, .. }) => {
            original as usize
        }
        _ => POSITIONS,
    }
}

fn rope_scaling(scaling: RopeScaling) -> Value {
    match scaling {
        RopeScaling::Dynamic { factor, .. } => json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::LongRope(LongRope {
            short_factor: short,
            long_factor: long,
            original_max_position_embeddings: original,
            attention_factor: attention,
        }) => json!({
            "rope_type": "longrope", "short_factor": Vec::from(short),
            "long_factor": Vec::from(long), "original_max_position_embeddings": original,
            "attention_factor": attention,
        }),
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position_embeddings: original,
        } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original,
        }),
        RopeScaling::Yarn(Yarn {
            factor,
            original_max_position_embeddings: original,
            beta_fast: fast,
            beta_slow: slow,
            attention_factor: attention,
            truncate,
        }) => json!({
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
