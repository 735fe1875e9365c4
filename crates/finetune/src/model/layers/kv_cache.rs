//! Attention over a KV cache: the keys and values of all tokens so far.

use retrograph_kernels::ops::{
    CacheScores, CacheSoftmax, CacheValues, DType, DecodeAttention, DecodeAttentionCombine,
    KvCache as CacheBuffers, KvCacheAppend, KvCacheShape, PrefillAttention, QkNormRope,
    QkvProjection, TensorView,
};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use super::activation::{Activation, Dtypes};
use super::self_attention::{self, Operands};
use crate::config::is_bf16;
use crate::error::Result;
use crate::spec::{AttentionSpec, LayerSpec, ModelSpec};

/// The keys and values of a layer, `[batch, capacity, kv_heads, head_dim]` each.
pub type LayerCache = CacheBuffers<BufferId>;

/// Sizes and dtype of the KV cache of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Texts, each with its own keys and values.
    pub batch: usize,
    /// Positions of a sequence that the pass can attend to.
    pub length: usize,
    /// Positions of a sequence in the buffers.
    pub capacity: usize,
    /// The dtype of keys and values: f32 or bf16.
    pub dtype: DType,
}

/// The KV cache of all layers.
#[derive(Clone, Debug)]
pub(in crate::model) struct KvCache {
    pub(in crate::model) layers: Vec<LayerCache>,
    /// Control: the positions of the new tokens: of one sequence in prefill, of each in decode.
    pub(in crate::model) positions: Slice<u32>,
    config: CacheConfig,
}

impl KvCache {
    /// Declares the buffers of every layer as externals, and the positions of `rows` tokens of each
    /// sequence as a control.
    pub(in crate::model) fn declare(
        builder: &mut Builder,
        spec: &ModelSpec,
        config: CacheConfig,
        rows: usize,
    ) -> Result<Self> {
        let bf16 = is_bf16("cache_dtype", config.dtype)?;
        let pass = &mut builder.pass;
        let declare = |(number, layer): (usize, &LayerSpec)| {
            let elements = config.batch * config.capacity * layer.attention.kv_width();
            let names = ["keys", "values"].map(|part| format!("cache.{number}.{part}"));
            match bf16 {
                false => CacheBuffers::F32(names.map(|name| pass.external(name, elements))),
                true => CacheBuffers::Bf16(names.map(|name| pass.external(name, elements))),
            }
        };
        let layers = spec.layers.iter().enumerate().map(declare).collect();
        let positions = builder.pass.control_array::<u32>("positions", config.batch * rows);
        Ok(Self { layers, positions, config })
    }

    /// Returns the cache of a layer.
    pub(in crate::model) fn layer(&self, number: usize, spec: &LayerSpec) -> LayerKv {
        let CacheConfig { batch, length, .. } = self.config;
        let (heads, kv_heads) = (spec.attention.heads, spec.attention.kv_heads);
        let shape =
            KvCacheShape { capacity: length, heads, kv_heads, head_dim: spec.attention.head_dim };
        let all = self.layers[number];
        // Kernels of one sequence read only the positions that the pass can attend to.
        let caches =
            if batch == 1 { all.slice(0..length * kv_heads * shape.head_dim) } else { all };
        let AttentionSpec { window, scale, softcap, .. } = spec.attention;
        let fused = spec.attention.has_fused_prefill(self.config.dtype);
        LayerKv { caches, positions: self.positions, shape, fused, window, scale, softcap }
    }
}

/// The KV cache of a layer, up to the length that a pass can attend to.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct LayerKv {
    caches: LayerCache,
    /// As [`KvCache::positions`].
    positions: Slice<u32>,
    shape: KvCacheShape,
    /// Whether one kernel computes the attention of new tokens.
    fused: bool,
    /// Maximum positions that a token attends to, including itself.
    window: Option<u32>,
    /// The factor of the scores.
    scale: f32,
    /// The cap of the scores.
    softcap: Option<f32>,
}

/// The new tokens of a prefill pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewTokens {
    /// Queries, keys and values, in [`LayerKv::prefill_dtypes`].
    pub(super) operands: Operands,
    /// Rows of q, k and v.
    pub(super) rows: usize,
    /// Control: the number of rows that are tokens; `None` for all.
    pub(super) count: Option<Slice<u32>>,
}

impl LayerKv {
    /// Appends the attention of one token of each sequence, into `out`. The kernel completes the
    /// projections, adds key and value to the cache and attends.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        qkv: [QkvProjection<BufferId>; 3],
        norm_rope: QkNormRope<BufferId>,
        out: Activation,
    ) -> Result<()> {
        let Self { caches, positions: position, shape, window, scale, softcap, .. } = *self;
        let runs = position.len() * shape.heads * shape.splits(position.len());
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
            softcap,
        };
        builder.launch(attention.launch())?;
        let out = out.written();
        let combine = DecodeAttentionCombine { partials, stats, out, position, shape, window };
        builder.launch(combine.launch())
    }

    /// The dtype of the cache.
    fn dtype(&self) -> DType {
        self.caches.views()[0].dtype()
    }

    /// The dtypes in which prefill reads queries, keys and values: fused attention computes in the
    /// dtype of the cache.
    pub(super) fn prefill_dtypes(&self) -> Dtypes {
        if self.fused { self.dtype().into() } else { Dtypes::F32 }
    }

    /// Appends the keys and values of new tokens of one sequence to the cache, and their attention,
    /// whose output is read in `dtypes`. Attention that is not fused computes in `compute`, or in
    /// bf16 if the cache is bf16.
    pub(super) fn prefill(
        &self,
        builder: &mut Builder,
        new: NewTokens,
        compute: DType,
        dtypes: Dtypes,
    ) -> Result<Activation> {
        let Self { caches, shape, window, scale, softcap, .. } = *self;
        let NewTokens { operands: Operands { q, k, v }, rows: queries, count } = new;
        let start = self.positions.slice(0..1);
        let view = |tensor: Activation| match self.fused {
            true => Ok(tensor.narrowest()),
            false => tensor.f32().map(TensorView::F32),
        };
        let (keys, values) = (view(k)?, view(v)?);
        let append = KvCacheAppend { keys, values, caches, start, count, shape };
        builder.launch(append.launch())?;
        if !self.fused {
            let out = self.unfused(builder, q.f32()?, queries, compute)?;
            return Activation::cast(builder, out, dtypes);
        }
        let q = q.narrowest();
        let out = Activation::transient(builder, "out", q.len(), dtypes);
        let written = out.written();
        let attention = PrefillAttention {
            q,
            caches,
            out: written,
            start,
            queries,
            window,
            shape,
            scale,
            softcap,
        };
        builder.launch(attention.launch())?;
        Ok(out)
    }

    /// Appends attention as products over every position that the pass can attend to.
    fn unfused(
        &self,
        builder: &mut Builder,
        q: Slice<f32>,
        queries: usize,
        compute: DType,
    ) -> Result<Slice<f32>> {
        let Self { caches, positions, shape, window, scale, softcap, .. } = *self;
        let out = builder.transient("out", q.len());
        let compute = if self.dtype() == DType::Bf16 { DType::Bf16 } else { compute };
        let [keys, values] = caches.views();
        let (heads, width) = (shape.heads, shape.capacity);
        let scores: Slice<f32> = builder.transient("scores", heads * queries * width);
        let product = CacheScores { q, keys, scores, queries, shape, scale };
        builder.launch(product.launch_in(compute))?;
        let (scores, _) = self_attention::softcap(builder, softcap, scores)?;
        let start = positions.slice(0..1);
        let softmax: CacheSoftmax<BufferId> =
            CacheSoftmax { values: scores, start, heads, queries, width, window };
        builder.launch(softmax.launch())?;
        let product = CacheValues { probs: scores, values, out, queries, shape };
        builder.launch(product.launch_in(compute))?;
        Ok(out)
    }
}
