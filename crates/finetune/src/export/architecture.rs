//! The architecture of a model, and its names in files.

use super::ExportError;
use crate::config::{GatedActivation, ModelConfig};

/// The interval of layers without RoPE in llama.cpp.
const GGUF_NO_ROPE_INTERVAL: usize = 4;

/// The explanation if no architecture has the parts of a model.
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
                "layers without a window between other layers, in a model that is not Gemma",
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

    /// Returns `None` for a model without any part of Gemma, and `Some(None)` for a model that has
    /// some parts of Gemma but is not Gemma.
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

    /// Returns the architecture in llama.cpp, which supports windows only in Gemma and calls
    /// Mistral llama.
    ///
    /// # Errors
    /// [`ExportError::NotExpressible`] for biases of the MLP, for a SmolLM3 with biases or with
    /// other layers without RoPE than every fourth, and for a Gemma with parts that llama.cpp
    /// does not read.
    pub(super) fn of_gguf(model: &ModelConfig) -> Result<Self, ExportError> {
        let architecture = Self::of(&ModelConfig { sliding_window: None, ..*model })?;
        let what = match (architecture, model.no_rope_interval) {
            (Self::Gemma2 | Self::Gemma3, _) => match not_in_gguf(architecture, model) {
                Some(what) => what.to_owned(),
                None => return Ok(architecture),
            },
            _ if model.mlp_bias => "biases of the MLP".to_owned(),
            (Self::SmolLm3, _) if model.o_bias => "biases of SmolLM3".to_owned(),
            (Self::SmolLm3, Some(interval)) if interval != GGUF_NO_ROPE_INTERVAL => {
                format!("layers without RoPE at an interval of {interval}")
            }
            _ => return Ok(architecture),
        };
        let remedy = "use a Hugging Face directory";
        Err(ExportError::NotExpressible { format: super::gguf::FORMAT, what, remedy })
    }

    /// The name in GGUF.
    pub(super) fn gguf_name(self) -> &'static str {
        if self == Self::Gemma3 { "gemma3" } else { self.name() }
    }

    /// The name in `config.json`.
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
    pub(super) fn class(self) -> &'static str {
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

/// Returns the part of a Gemma that GGUF cannot express.
fn not_in_gguf(architecture: Architecture, model: &ModelConfig) -> Option<&'static str> {
    if model.sliding_window.is_some_and(|window| window.first_layer > 0) {
        return Some("a sliding window in later layers of Gemma");
    }
    let capped = (model.attention_softcap.is_some(), model.logit_softcap.is_some());
    match architecture {
        Architecture::Gemma2 if !model.tie_word_embeddings => {
            Some("an output projection of Gemma 2 that is not tied to its token embeddings")
        }
        Architecture::Gemma2 if capped != (true, true) => {
            Some("Gemma 2 without soft-capping of scores and logits")
        }
        Architecture::Gemma3 if capped.0 => Some("soft-capping of the scores of Gemma 3"),
        // llama.cpp does not scale positions in sliding-window layers.
        Architecture::Gemma3
            if model.rope_scaling.is_some()
                && model.local_rope_theta.is_none()
                && model.sliding_window.is_some() =>
        {
            Some("RoPE scaling in layers of Gemma 3 with a sliding window")
        }
        _ => None,
    }
}
