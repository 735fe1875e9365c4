//! Model configuration.

use retrograph_kernels::ops::{GatedActivation, rope_frequencies, rope_tables_scaled};
use serde::{Deserialize, Serialize};

use super::check::{require, within};
use super::{Projection, RopeScaling};
use crate::error::Result;

/// Architecture and dimensions of a decoder-only transformer with RMSNorm, RoPE, grouped-query
/// attention and a gated MLP.
///
/// Qwen2 has biases on query, key and value. Qwen3 has q/k norm instead. Llama has neither. Phi-3
/// may rotate a part of each head. SmolLM3 has layers without RoPE. Gemma has GeGLU, scaled
/// embeddings and norms after each block. Gemma 2 adds soft-capping. Gemma 3 has q/k norm and a
/// different RoPE base in sliding-window layers.
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
    #[serde(alias = "tied")]
    pub tie_word_embeddings: bool,
    /// Base of the RoPE frequencies.
    pub rope_theta: f64,
    /// Scaling of the RoPE frequencies for a longer context, if any.
    pub rope_scaling: Option<RopeScaling>,
    /// Elements of each head that RoPE rotates; `None` for all.
    #[serde(default)]
    pub rotary_dim: Option<usize>,
    /// The interval of layers without RoPE: with 4, every fourth layer. `None` if all layers have
    /// RoPE.
    #[serde(default)]
    pub no_rope_interval: Option<usize>,
    /// Added to the mean square in every RMSNorm, in forward and backward.
    pub rms_norm_eps: f32,
    /// The sliding window of attention, if there is one.
    #[serde(default)]
    pub sliding_window: Option<SlidingWindow>,
    /// Base of the RoPE frequencies in sliding-window layers, where no scaling applies. `None` if
    /// these layers also use `rope_theta` and its scaling.
    #[serde(default)]
    pub local_rope_theta: Option<f64>,
    /// Attention scores are divided by the square root of this number; `None` for the head
    /// dimension.
    #[serde(default)]
    pub query_pre_attn_scalar: Option<f64>,
    /// The cap of attention scores: they become `cap · tanh(score / cap)`.
    #[serde(default)]
    pub attention_softcap: Option<f32>,
    /// The cap of logits, likewise.
    #[serde(default)]
    pub logit_softcap: Option<f32>,
    /// The activation of the gated MLP.
    #[serde(default, with = "StoredActivation")]
    pub activation: GatedActivation,
    /// Whether an RMSNorm also follows attention and the MLP, before the residual stream.
    #[serde(default)]
    pub post_norms: bool,
    /// Whether norms multiply by `1 + w`. Files store `w`; the device stores the sum.
    #[serde(default)]
    pub unit_offset_norms: bool,
    /// Whether embedded tokens are multiplied by the square root of `hidden`.
    #[serde(default)]
    pub scaled_embedding: bool,
    /// Whether files store query, key and value projections as one matrix, and gate and up as one.
    /// The device always has separate matrices.
    #[serde(default)]
    pub fused: bool,
}

/// How configurations store a [`GatedActivation`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "GatedActivation", rename_all = "snake_case")]
enum StoredActivation {
    Silu,
    GeluTanh,
}

/// Attention to the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// Maximum number of tokens that a token attends to, including itself.
    pub size: u32,
    /// The first layer with the window; earlier layers attend to all tokens.
    pub first_layer: usize,
    /// The interval of layers without the window: with 6, every sixth layer attends to all tokens.
    /// `None` if all layers from `first_layer` on have the window.
    #[serde(default)]
    pub full_interval: Option<usize>,
}

impl SlidingWindow {
    /// Returns a window of `size` tokens for all layers from `first_layer` on.
    pub const fn new(size: u32, first_layer: usize) -> Self {
        Self { size, first_layer, full_interval: None }
    }

    /// Whether layer `number`, counted from 0, has the window.
    pub fn covers(&self, number: usize) -> bool {
        let full = |interval| (number + 1).is_multiple_of(interval);
        number >= self.first_layer && !self.full_interval.is_some_and(full)
    }
}

impl ModelConfig {
    /// Maximum number of layers. Published models have up to 126; planning time is quadratic in the
    /// number of layers.
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

    /// Returns the RoPE frequencies of the rotated pairs of a head, in radians per position. Some
    /// scalings depend on `positions`, the length of a run.
    pub fn rope_frequencies(&self, positions: usize) -> Vec<f64> {
        let base = rope_frequencies(self.rotary_dim(), self.rope_theta);
        match self.rope_scaling {
            Some(scaling) => scaling.scaled(base, self.rope_theta, positions),
            None => base,
        }
    }

    /// Returns the cosines and sines of the first `positions` positions, each
    /// `[tables, positions, head_dim ÷ 2]`, with the factor of the scaling. Pairs that are not
    /// rotated have the cosine 1 and the sine 0. There is one table, and a second one if
    /// sliding-window layers have their own base.
    pub fn rope_tables(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let (mut cos, mut sin) = self.rope_table(positions);
        if let Some(theta) = self.local_rope_theta {
            let local = Self { rope_theta: theta, rope_scaling: None, ..*self };
            let (local_cos, local_sin) = local.rope_table(positions);
            cos.extend(local_cos);
            sin.extend(local_sin);
        }
        (cos, sin)
    }

    /// Number of tables in [`ModelConfig::rope_tables`].
    pub fn rope_table_count(&self) -> usize {
        1 + usize::from(self.local_rope_theta.is_some())
    }

    fn rope_table(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
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
        for (field, theta) in [
            ("rope_theta", self.rope_theta),
            ("local_rope_theta", self.local_rope_theta.unwrap_or(self.rope_theta)),
        ] {
            require(field, theta, theta.is_finite() && theta > 1.0, "finite and above 1")?;
        }
        if let Some(SlidingWindow { size, full_interval, .. }) = self.sliding_window {
            require("sliding_window", size, size >= 1, "at least 1")?;
            let interval = full_interval.unwrap_or(2);
            require("full_interval", interval, interval >= 2, "at least 2")?;
        }
        let scalar = self.query_pre_attn_scalar.unwrap_or(1.0);
        let positive = |value: f64| value.is_finite() && value > 0.0;
        require("query_pre_attn_scalar", scalar, positive(scalar), "finite and above 0")?;
        for (field, cap) in
            [("attention_softcap", self.attention_softcap), ("logit_softcap", self.logit_softcap)]
        {
            let cap = cap.unwrap_or(1.0);
            require(field, cap, positive(cap.into()), "finite and above 0")?;
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
        // A layer without RoPE reads the first row of the tables. Its cosine is the amplitude.
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
