//! Named model configurations.

use std::fmt;
use std::str::FromStr;

use super::GatedActivation;
use super::choice::UnknownChoice;
use super::model::ModelConfig;
use crate::error::Result;

/// Minimum vocabulary size without a tokenizer: each byte is a token.
pub const BYTE_VOCABULARY: usize = 256;

/// A named model configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// Two layers of width 64, with bytes as tokens: trains on the simulated driver in seconds.
    Tiny,
    /// The dimensions of Qwen2.5-0.5B.
    Qwen25Half,
    /// The dimensions of Qwen2.5-1.5B.
    Qwen25OneAndHalf,
}

impl Preset {
    /// All presets.
    pub const ALL: &[Self] = &[Self::Tiny, Self::Qwen25Half, Self::Qwen25OneAndHalf];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Qwen25Half => "qwen2.5-0.5b",
            Self::Qwen25OneAndHalf => "qwen2.5-1.5b",
        }
    }

    /// Returns the model configuration.
    pub fn model(self) -> ModelConfig {
        let qwen = ModelConfig {
            vocab: 151_936,
            hidden: 896,
            layers: 24,
            intermediate: 4864,
            heads: 14,
            kv_heads: 2,
            head_dim: None,
            qkv_bias: true,
            o_bias: false,
            mlp_bias: false,
            qk_norm: false,
            tie_word_embeddings: true,
            rope_theta: 1e6,
            rope_scaling: None,
            rotary_dim: None,
            no_rope_interval: None,
            rms_norm_eps: 1e-6,
            sliding_window: None,
            local_rope_theta: None,
            query_pre_attn_scalar: None,
            attention_softcap: None,
            logit_softcap: None,
            activation: GatedActivation::Silu,
            post_norms: false,
            unit_offset_norms: false,
            scaled_embedding: false,
            fused: false,
        };
        match self {
            Self::Tiny => ModelConfig {
                vocab: BYTE_VOCABULARY,
                hidden: 64,
                layers: 2,
                intermediate: 176,
                heads: 4,
                rope_theta: 1e4,
                ..qwen
            },
            Self::Qwen25Half => qwen,
            Self::Qwen25OneAndHalf => {
                ModelConfig { hidden: 1536, layers: 28, intermediate: 8960, heads: 12, ..qwen }
            }
        }
    }

    /// Returns the default LoRA rank.
    pub fn default_rank(self) -> usize {
        if self == Self::Tiny { 8 } else { 16 }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        Self::ALL.iter().copied().find(|preset| preset.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            UnknownChoice::new(text, "a preset", names.join(", "))
        })
    }
}
