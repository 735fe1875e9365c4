//! Attention over a KV cache: the keys and values of all tokens so far.

use retrograph_kernels::ops::{
    CacheAppend, CacheScores, CacheShape, CacheSoftmax, CacheValues, DType, DecodeAttention,
    DecodeAttentionCombine, KvCache as CacheBuffers, QkNormRope, QkvProjection,
};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use super::self_attention;
use crate::config::is_bf16;
use crate::error::Result;
use crate::spec::{AttentionSpec, LayerSpec, ModelSpec};

/// The keys and values of a layer, `[capacity, kv_heads, head_dim]` each.
pub type LayerCache = CacheBuffers<BufferId>;

/// Sizes and dtype of the KV cache of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Positions that the pass can attend to.
    pub length: usize,
    /// Positions in the buffers.
    pub capacity: usize,
    /// The dtype of keys and values: f32 or bf16.
    pub dtype: DType,
}

/// The KV cache of all layers.
#[derive(Clone, Debug)]
pub(in crate::model) struct KvCache {
    pub(in crate::model) layers: Vec<LayerCache>,
    /// Control: the position of the first new token.
    pub(in crate::model) position: Slice<u32>,
    config: CacheConfig,
}

impl KvCache {
    /// Declares the buffers of every layer as externals, and the position as a control.
    pub(in crate::model) fn declare(
        builder: &mut Builder,
        spec: &ModelSpec,
        config: CacheConfig,
    ) -> Result<Self> {
        let bf16 = is_bf16("cache_dtype", config.dtype)?;
        let pass = &mut builder.pass;
        let declare = |(number, layer): (usize, &LayerSpec)| {
            let elements = config.capacity * layer.attention.kv_width();
            let names = ["keys", "values"].map(|part| format!("cache.{number}.{part}"));
            match bf16 {
                false => CacheBuffers::F32(names.map(|name| pass.external(name, elements))),
                true => CacheBuffers::Bf16(names.map(|name| pass.external(name, elements))),
            }
        };
        let layers = spec.layers.iter().enumerate().map(declare).collect();
        let position = builder.pass.control::<u32>("position");
        Ok(Self { layers, position, config })
    }

    /// Returns the part of the cache of a layer to which the pass can attend.
    pub(in crate::model) fn layer(&self, number: usize, spec: &LayerSpec) -> LayerKv {
        let length = self.config.length;
        let (heads, kv_heads) = (spec.attention.heads, spec.attention.kv_heads);
        let shape =
            CacheShape { capacity: length, heads, kv_heads, head_dim: spec.attention.head_dim };
        let visible = self.layers[number].first(length * kv_heads * shape.head_dim);
        let AttentionSpec { window, scale, softcap, .. } = spec.attention;
        LayerKv { caches: visible, position: self.position, shape, window, scale, softcap }
    }
}

/// The KV cache of a layer, up to the length that a pass can attend to.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct LayerKv {
    caches: LayerCache,
    /// Control: the position of the first new token.
    pub(super) position: Slice<u32>,
    shape: CacheShape,
    /// The most positions that a token attends to, itself included.
    window: Option<u32>,
    /// The factor of the scores.
    scale: f32,
    /// The cap of the scores.
    softcap: Option<f32>,
}

/// The new tokens of a prefill pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewTokens {
    pub(super) q: Slice<f32>,
    pub(super) k: Slice<f32>,
    pub(super) v: Slice<f32>,
    /// Rows of q, k and v.
    pub(super) rows: usize,
    /// Control: how many rows are tokens; `None` for all.
    pub(super) count: Option<Slice<u32>>,
}

impl LayerKv {
    /// Appends the attention of one token. The kernel completes the projections, adds key and value
    /// to the cache and attends.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        qkv: [QkvProjection<BufferId>; 3],
        norm_rope: QkNormRope<BufferId>,
    ) -> Result<Slice<f32>> {
        let Self { caches, position, shape, window, scale, .. } = *self;
        let runs = shape.heads * shape.splits();
        let partials = builder.transient("runs", runs * shape.head_dim);
        let stats = builder.transient("run_stats", runs * 2);
        let attention = DecodeAttention {
            qkv,
            norm_rope,
            caches,
            partials,
            stats,
            position,
            shape,
            window,
            scale,
        };
        builder.launch(attention.launch())?;
        let out = builder.transient("out", shape.heads * shape.head_dim);
        builder.launch(
            DecodeAttentionCombine { partials, stats, out, position, shape, window }.launch(),
        )?;
        Ok(out)
    }

    /// Appends the attention of new tokens, whose keys and values enter the cache, as products over
    /// every position that the pass can attend to. A bf16 cache takes products in bf16, whatever
    /// the `compute` of the layers.
    pub(super) fn prefill(
        &self,
        builder: &mut Builder,
        new: NewTokens,
        compute: DType,
    ) -> Result<Slice<f32>> {
        let Self { caches, position: start, shape, window, scale, softcap } = *self;
        let NewTokens { q, k, v, rows: queries, count } = new;
        let append = CacheAppend { keys: k, values: v, caches, start, count, shape };
        builder.launch(append.launch())?;
        let out = builder.transient("out", q.len());
        let compute = if matches!(caches, CacheBuffers::Bf16(_)) { DType::Bf16 } else { compute };
        let [keys, values] = caches.views();
        let (heads, width) = (shape.heads, shape.capacity);
        let scores: Slice<f32> = builder.transient("scores", heads * queries * width);
        let product = CacheScores { q, keys, scores, queries, shape, scale };
        builder.launch(product.launch_in(compute))?;
        let (scores, _) = self_attention::softcap(builder, softcap, scores)?;
        let softmax: CacheSoftmax<BufferId> =
            CacheSoftmax { values: scores, start, heads, queries, width, window };
        builder.launch(softmax.launch())?;
        let product = CacheValues { probs: scores, values, out, queries, shape };
        builder.launch(product.launch_in(compute))?;
        Ok(out)
    }
}
