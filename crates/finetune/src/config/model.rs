//! Model configuration and presets.

use std::fmt;
use std::str::FromStr;

use retrograph_kernels::ops::{rope_frequencies, rope_tables_scaled};
use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::choice::UnknownChoice;
use super::{Projection, RopeScaling};
use crate::error::Result;

/// Minimum vocabulary size without a tokenizer: each byte is a token.
pub const BYTE_VOCABULARY: usize = 256;

/// Dimensions and parts of a decoder-only transformer with RMSNorm, RoPE, grouped-query attention
/// and SwiGLU.
///
/// Qwen2 has biases on query, key and value. Qwen3 has q/k norm instead. Llama has neither. Phi-3
/// may rotate a part of each head. SmolLM3 has layers without RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Vocabulary size.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the gated MLP.
    pub intermediate: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Head dimension; `None` for `hidden / heads`.
    pub head_dim: Option<usize>,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection of attention has a bias.
    #[serde(default)]
    pub o_bias: bool,
    /// Whether the projections of the MLP have biases.
    #[serde(default)]
    pub mlp_bias: bool,
    /// Whether an RMSNorm normalizes each query and key head before RoPE.
    pub qk_norm: bool,
    /// Whether the output projection is the token embedding.
    pub tied: bool,
    /// Base of the RoPE frequencies.
    pub rope_theta: f64,
    /// Scaling of the RoPE frequencies for a longer context, if any.
    pub rope_scaling: Option<RopeScaling>,
    /// Elements of each head that RoPE rotates; `None` for all.
    #[serde(default)]
    pub rotary_dim: Option<usize>,
    /// The distance of layers without RoPE: with 4, every fourth layer. `None` if all have it.
    #[serde(default)]
    pub no_rope_interval: Option<usize>,
    /// Added to the mean square in every RMSNorm, in forward and backward.
    pub rms_norm_eps: f32,
    /// The sliding window of attention, if there is one.
    #[serde(default)]
    pub sliding_window: Option<SlidingWindow>,
    /// Whether files store query, key and value projections as one matrix, and gate and up as one.
    /// The device has separate matrices in any case.
    #[serde(default)]
    pub fused: bool,
}

/// Attention to the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// The most tokens that a token attends to, itself included.
    pub size: u32,
    /// The first layer with the window; earlier layers attend to all tokens.
    pub first_layer: usize,
}

impl ModelConfig {
    /// Maximum layers. Published models have up to 126; planning time is quadratic in the layers.
    pub const MAX_LAYERS: usize = 512;
    /// Maximum vocabulary size, and maximum width of the residual stream, of the MLP, and of all
    /// heads together.
    pub const MAX_WIDTH: usize = 1 << 24;

    /// Head dimension.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// Width of all query heads together.
    pub fn q_width(&self) -> usize {
        self.heads.saturating_mul(self.head_dim())
    }

    /// Width of all key heads together, and of all value heads together.
    pub fn kv_width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim())
    }

    /// Returns the input and output width of a projection.
    pub fn projection(&self, projection: Projection) -> [usize; 2] {
        self.layer(0).projection(projection)
    }

    /// Elements of each head that RoPE rotates.
    pub fn rotary_dim(&self) -> usize {
        self.rotary_dim.unwrap_or(self.head_dim())
    }

    /// Returns the RoPE frequencies of the pairs of a head that are rotated, in radians per
    /// position. `positions` is the length of a run, by which some scalings choose.
    pub fn rope_frequencies(&self, positions: usize) -> Vec<f64> {
        let base = rope_frequencies(self.rotary_dim(), self.rope_theta);
        match self.rope_scaling {
            Some(scaling) => scaling.scaled(base, self.rope_theta, positions),
            None => base,
        }
    }

    /// Returns the cosines and sines of the first `positions` positions, each
    /// `[positions, head_dim ÷ 2]`, with the factor of the scaling. Pairs that are not rotated have
    /// the cosine 1 and the sine 0.
    pub fn rope_tables(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let amplitude = self.rope_scaling.map_or(1.0, RopeScaling::amplitude);
        let (cos, sin) =
            rope_tables_scaled(positions, &self.rope_frequencies(positions), amplitude);
        let (rotated, pairs) = (self.rotary_dim() / 2, self.head_dim() / 2);
        if rotated == pairs {
            return (cos, sin);
        }
        let widened = |table: Vec<f32>, value: f32| {
            let row = |row: &[f32]| {
                let rest = std::iter::repeat_n(value, pairs - rotated);
                row.iter().copied().chain(rest).collect::<Vec<_>>()
            };
            table.chunks(rotated).flat_map(row).collect()
        };
        (widened(cos, 1.0), widened(sin, 0.0))
    }

    /// Checks that the dimensions fit each other and the kernels. Call it before computing anything
    /// from the dimensions.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) with the first invalid dimension.
    pub fn validate(&self) -> Result<()> {
        within("vocab", self.vocab, Self::MAX_WIDTH)?;
        within("layers", self.layers, Self::MAX_LAYERS)?;
        within("hidden", self.hidden, Self::MAX_WIDTH)?;
        within("intermediate", self.intermediate, Self::MAX_WIDTH)?;
        within("heads", self.heads, Self::MAX_WIDTH)?;
        self.validate_head()?;
        self.validate_matrices()?;
        let grouped = self.kv_heads >= 1 && self.heads.is_multiple_of(self.kv_heads);
        require("kv_heads", self.kv_heads, grouped, "a divisor of the number of heads")?;
        let theta = self.rope_theta.is_finite() && self.rope_theta > 1.0;
        require("rope_theta", self.rope_theta, theta, "finite and above 1")?;
        if let Some(window) = self.sliding_window {
            require("sliding_window", window.size, window.size >= 1, "at least 1")?;
        }
        let eps = self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0;
        require("rms_norm_eps", self.rms_norm_eps, eps, "finite and above 0")?;
        self.validate_rope()
    }

    fn validate_rope(&self) -> Result<()> {
        let rotary = self.rotary_dim();
        let even = rotary >= 2 && rotary.is_multiple_of(2) && rotary <= self.head_dim();
        require("rotary_dim", rotary, even, "even, at least 2 and at most the head dimension")?;
        let interval = self.no_rope_interval;
        let shown = interval.unwrap_or(1);
        require("no_rope_interval", shown, interval != Some(0), "at least 1")?;
        let Some(scaling) = self.rope_scaling else { return Ok(()) };
        // A layer without RoPE reads the first row of the tables, whose cosine is the amplitude.
        let plain = interval.is_none() || scaling.amplitude() == 1.0;
        let rule = "without a RoPE scaling that also scales queries and keys";
        require("no_rope_interval", shown, plain, rule)?;
        scaling.validate(rotary)
    }

    fn validate_head(&self) -> Result<()> {
        let Some(width) = self.head_dim else {
            let divides = self.hidden >= self.heads && self.hidden.is_multiple_of(self.heads);
            require("hidden", self.hidden, divides, "a multiple of the number of heads")?;
            let even = self.head_dim().is_multiple_of(2);
            let rule = "such that hidden / heads is even, for rotary pairs";
            return require("hidden", self.hidden, even, rule);
        };
        within("head_dim", width, Self::MAX_WIDTH)?;
        require("head_dim", width, width.is_multiple_of(2), "even, for rotary pairs")
    }

    /// Checks that the elements of every matrix fit into 32 bits.
    fn validate_matrices(&self) -> Result<()> {
        within("heads x head_dim", self.q_width(), Self::MAX_WIDTH)?;
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
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Qwen25Half, Self::Qwen25OneAndHalf];

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
            tied: true,
            rope_theta: 1e6,
            rope_scaling: None,
            rotary_dim: None,
            no_rope_interval: None,
            rms_norm_eps: 1e-6,
            sliding_window: None,
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
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            UnknownChoice::new(text, "a preset", names.join(", "))
        })
    }
}
