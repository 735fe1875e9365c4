//! Dimensions of the model, and presets of them.

use std::fmt;
use std::str::FromStr;

use retrograph_kernels::ops::rope_frequencies;
use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::{Projection, RopeScaling};
use crate::error::Result;

/// Tokens are bytes, so a vocabulary needs at least this many entries.
pub const BYTE_VOCABULARY: usize = 256;

/// Dimensions and parts of a decoder-only transformer: RMSNorm, rotary positions, grouped-query
/// attention, SwiGLU.
///
/// Qwen2 has biases on query, key and value. Qwen3 has none, and a norm of each query and key head.
/// Llama has neither.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Entries of the token table.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the gated MLP.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of one head; `None` for `hidden / heads`.
    pub head_dim: Option<usize>,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether each query and key head passes through an RMSNorm before it is rotated.
    pub qk_norm: bool,
    /// Whether the token table is also the output projection.
    pub tied: bool,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How the rotary frequencies are changed for a longer context; `None` for not at all.
    pub rope_scaling: Option<RopeScaling>,
    /// Added to the mean square in every RMSNorm, forward and backward alike.
    pub rms_norm_eps: f32,
}

impl ModelConfig {
    /// The most layers. Published models have up to 126; planning takes a time that grows with the
    /// square of the layers.
    pub const MOST_LAYERS: usize = 512;
    /// The most tokens, and the largest width of the residual stream, of the MLP, and of all heads
    /// together.
    pub const MOST_WIDTH: usize = 1 << 24;

    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// Width of all query heads together.
    pub fn q_width(&self) -> usize {
        self.heads.saturating_mul(self.head_dim())
    }

    /// Width of all key heads together, which is also that of the value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim())
    }

    /// Inputs and outputs of a projection.
    pub fn projection(&self, projection: Projection) -> [usize; 2] {
        self.layer().projection(projection)
    }

    /// The frequencies of the rotary pairs, in radians per position.
    pub fn rope_frequencies(&self) -> Vec<f64> {
        let base = rope_frequencies(self.head_dim(), self.rope_theta);
        let scale = |frequency| match self.rope_scaling {
            Some(scaling) => scaling.scaled(frequency),
            None => frequency,
        };
        base.into_iter().map(scale).collect()
    }

    /// Checks that the dimensions fit each other and the kernels. Nothing is computed from the
    /// dimensions of a model before this.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) with the dimension that is wrong.
    pub fn validate(&self) -> Result<()> {
        within("vocab", self.vocab, Self::MOST_WIDTH)?;
        within("layers", self.layers, Self::MOST_LAYERS)?;
        within("hidden", self.hidden, Self::MOST_WIDTH)?;
        within("intermediate", self.intermediate, Self::MOST_WIDTH)?;
        within("heads", self.heads, Self::MOST_WIDTH)?;
        self.validate_head()?;
        self.validate_matrices()?;
        let grouped = self.kv_heads >= 1 && self.heads.is_multiple_of(self.kv_heads);
        require("kv_heads", self.kv_heads, grouped, "a divisor of the number of heads")?;
        let theta = self.rope_theta.is_finite() && self.rope_theta > 1.0;
        require("rope_theta", self.rope_theta, theta, "finite and above 1")?;
        let eps = self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0;
        require("rms_norm_eps", self.rms_norm_eps, eps, "finite and above 0")?;
        self.rope_scaling.map_or(Ok(()), |scaling| scaling.validate())
    }

    fn validate_head(&self) -> Result<()> {
        let Some(width) = self.head_dim else {
            let divides = self.hidden >= self.heads && self.hidden.is_multiple_of(self.heads);
            require("hidden", self.hidden, divides, "a multiple of the number of heads")?;
            let even = self.head_dim().is_multiple_of(2);
            let rule = "such that hidden / heads is even, for rotary pairs";
            return require("hidden", self.hidden, even, rule);
        };
        within("head_dim", width, Self::MOST_WIDTH)?;
        require("head_dim", width, width.is_multiple_of(2), "even, for rotary pairs")
    }

    /// Every matrix must have fewer elements than the kernels can count.
    fn validate_matrices(&self) -> Result<()> {
        within("heads x head_dim", self.q_width(), Self::MOST_WIDTH)?;
        for (field, width) in [
            ("vocab x hidden", self.vocab),
            ("hidden x intermediate", self.intermediate),
            ("heads x head_dim x hidden", self.q_width()),
        ] {
            let elements = width.saturating_mul(self.hidden);
            require(field, elements, u32::try_from(elements).is_ok(), "below 2^32")?;
        }
        Ok(())
    }
}

/// Dimensions with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Two layers of width 64 over bytes: trains on the simulated driver in seconds.
    Tiny,
    /// The dimensions of Qwen2.5-0.5B.
    Qwen25Half,
    /// The dimensions of Qwen2.5-1.5B.
    Qwen25OneAndHalf,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Qwen25Half, Self::Qwen25OneAndHalf];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Qwen25Half => "qwen2.5-0.5b",
            Self::Qwen25OneAndHalf => "qwen2.5-1.5b",
        }
    }

    /// The dimensions.
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
            qk_norm: false,
            tied: true,
            rope_theta: 1e6,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
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

    /// The rank of the LoRA matrices when none is asked for.
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            format!("`{text}` is not a preset; known are {}", names.join(", "))
        })
    }
}
