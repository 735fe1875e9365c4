//! The architecture of a model as a value: its layers, and the attention, MLP and norms of each.
//!
//! A [`ModelSpec`] is built from a [`ModelConfig`], which files store. Parameters, passes and
//! rotary tables are built from the spec, so a layer can differ from its neighbors.
//!
//! ```
//! use retrograph_finetune::{Preset, spec::ModelSpec};
//!
//! let spec = ModelSpec::from(&Preset::Tiny.model());
//! assert_eq!(spec.layers.len(), 2);
//! assert_eq!(spec.layers[0].attention.q_width(), 64);
//! ```

use retrograph_kernels::DType;
use retrograph_kernels::attention::supports_softcap;
use retrograph_kernels::ops::KvCacheShape;

use crate::config::{GatedActivation, ModelConfig, Projection, RopeScaling};

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Entries of the token table.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// The layers, in the order of the forward pass.
    pub layers: Vec<LayerSpec>,
    /// The factor of embedded tokens.
    pub embedding_scale: f32,
    /// The norm before the output projection.
    pub final_norm: NormSpec,
    /// The cap of the logits: they become `cap · tanh(logit / cap)`.
    pub logit_softcap: Option<f32>,
    /// Whether the token table is also the output projection.
    pub tie_word_embeddings: bool,
}

/// A layer: attention and MLP, each after a norm and added to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// The norm before attention.
    pub attention_norm: NormSpec,
    /// Attention.
    pub attention: AttentionSpec,
    /// The norm before the MLP.
    pub mlp_norm: NormSpec,
    /// The MLP.
    pub mlp: MlpSpec,
    /// The norms after attention and after the MLP, before the residual stream, if there are any.
    pub post_norm: Option<NormSpec>,
    /// Whether files store query, key and value projections as one matrix, and gate and up as one.
    pub fused: bool,
}

/// Causal grouped-query attention with rotary positions, within a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub o_bias: bool,
    /// The norm of each query and key head before RoPE, if there is one.
    pub qk_norm: Option<NormSpec>,
    /// The rotary positions; `None` for a layer without positions.
    pub rope: Option<RopeSpec>,
    /// The sliding window: maximum tokens that a token attends to, including itself. `None` for
    /// all.
    pub window: Option<u32>,
    /// The factor of the scores.
    pub scale: f32,
    /// The cap of the scores: they become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// The gated MLP `down(activation(gate(x)) · up(x))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpSpec {
    /// Width between the projections: outputs of `gate` and `up`.
    pub intermediate: usize,
    /// Whether the projections have biases.
    pub bias: bool,
    /// The activation of the gate.
    pub activation: GatedActivation,
}

/// RMSNorm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// Added to the mean square, forward and backward alike.
    pub eps: f32,
    /// The offset that the device adds to the gains in files: 1 if the norm multiplies by `1 + w`.
    pub offset: f32,
}

/// Frequencies of rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Elements of each head that are rotated.
    pub rotary_dim: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Change of the frequencies for a longer context; `None` for no change.
    pub scaling: Option<RopeScaling>,
    /// Number of its table in [`ModelConfig::rope_tables`].
    pub table: usize,
}

impl AttentionSpec {
    /// Width of all query heads.
    pub fn q_width(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Width of all key heads, which is also the width of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim)
    }

    /// Whether one kernel computes the attention of new tokens over a KV cache in this dtype.
    pub(crate) fn has_fused_prefill(&self, cache: DType) -> bool {
        let Self { heads, kv_heads, head_dim, softcap, .. } = *self;
        let shape = KvCacheShape { capacity: 0, heads, kv_heads, head_dim };
        shape.can_prefill_fused(cache) && (softcap.is_none() || supports_softcap(cache))
    }
}

impl LayerSpec {
    /// Returns inputs and outputs of a projection.
    pub fn projection(&self, projection: Projection) -> [usize; 2] {
        let (hidden, inner) = (self.hidden, self.mlp.intermediate);
        match projection {
            Projection::Q => [hidden, self.attention.q_width()],
            Projection::O => [self.attention.q_width(), hidden],
            Projection::K | Projection::V => [hidden, self.attention.kv_width()],
            Projection::Gate | Projection::Up => [hidden, inner],
            Projection::Down => [inner, hidden],
        }
    }

    /// Returns whether a projection has a bias.
    pub fn has_bias(&self, projection: Projection) -> bool {
        match projection {
            Projection::Q | Projection::K | Projection::V => self.attention.qkv_bias,
            Projection::O => self.attention.o_bias,
            Projection::Gate | Projection::Up | Projection::Down => self.mlp.bias,
        }
    }
}

impl From<&ModelConfig> for ModelSpec {
    /// Returns the spec of a model whose layers are alike, except for windows and RoPE.
    fn from(config: &ModelConfig) -> Self {
        Self {
            vocab: config.vocab,
            hidden: config.hidden,
            layers: (0..config.layers).map(|number| config.layer(number)).collect(),
            embedding_scale: match config.scaled_embedding {
                true => (config.hidden as f64).sqrt() as f32,
                false => 1.0,
            },
            final_norm: config.norm(),
            logit_softcap: config.logit_softcap,
            tie_word_embeddings: config.tie_word_embeddings,
        }
    }
}

impl ModelConfig {
    fn norm(&self) -> NormSpec {
        let offset = if self.unit_offset_norms { 1.0 } else { 0.0 };
        NormSpec { eps: self.rms_norm_eps, offset }
    }

    /// Returns the spec of layer `number`, counted from 0.
    pub fn layer(&self, number: usize) -> LayerSpec {
        let norm = self.norm();
        let window = self.sliding_window.filter(|window| window.covers(number));
        let rotary_dim = self.rotary_dim();
        let rope = match self.local_rope_theta.filter(|_| window.is_some()) {
            Some(theta) => RopeSpec { rotary_dim, theta, scaling: None, table: 1 },
            None => {
                let (theta, scaling) = (self.rope_theta, self.rope_scaling);
                RopeSpec { rotary_dim, theta, scaling, table: 0 }
            }
        };
        let scalar = self.query_pre_attn_scalar.unwrap_or(self.head_dim() as f64);
        let rotates =
            self.no_rope_interval.is_none_or(|interval| !(number + 1).is_multiple_of(interval));
        LayerSpec {
            hidden: self.hidden,
            attention_norm: norm,
            attention: AttentionSpec {
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim(),
                qkv_bias: self.qkv_bias,
                o_bias: self.o_bias,
                qk_norm: self.qk_norm.then_some(norm),
                rope: rotates.then_some(rope),
                window: window.map(|window| window.size),
                scale: (1.0 / scalar.sqrt()) as f32,
                softcap: self.attention_softcap,
            },
            mlp_norm: norm,
            mlp: MlpSpec {
                intermediate: self.intermediate,
                bias: self.mlp_bias,
                activation: self.activation,
            },
            post_norm: self.post_norms.then_some(norm),
            fused: self.fused,
        }
    }
}
