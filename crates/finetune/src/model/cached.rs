//! Attention over the keys and values of the tokens before, which a cache keeps.

use retrograph_kernels::ops::{
    CacheAppend, CacheScores, CacheShape, CacheSoftmax, CacheValues, DType, DecodeAttention,
    DecodeAttentionCombine, KvCache, QkNormRope, QkvProjection,
};
use retrograph_runtime::{BufferId, Slice};

use super::builder::Builder;
use crate::config::Dtype;
use crate::error::Result;

/// The buffers of one layer's keys and values, `[room, kv_heads, head_dim]` each.
pub type LayerCache = KvCache<BufferId>;

/// Sizes and type of the cache of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheForm {
    /// Positions that the pass can see.
    pub length: usize,
    /// Positions that the buffers have room for.
    pub room: usize,
    /// The type of keys and values in it.
    pub dtype: Dtype,
}

/// The cache as a pass sees it.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    pub(super) layers: Vec<LayerCache>,
    /// Control: the position of the first new token.
    pub(super) position: Slice<u32>,
    /// Control: how many of the new tokens count; without it, all.
    pub(super) count: Option<Slice<u32>>,
    pub(super) form: CacheForm,
}

impl Cache {
    /// Declares the buffers of every layer, and the position.
    pub(super) fn declare(builder: &mut Builder, form: CacheForm) -> Self {
        let elements = form.room * builder.config.model.kv_width();
        let pass = &mut builder.pass;
        let layers = (0..builder.config.model.layers).map(|layer| {
            let names = ["keys", "values"].map(|part| format!("cache.{layer}.{part}"));
            match form.dtype {
                Dtype::F32 => KvCache::F32(names.map(|name| pass.external(name, elements))),
                Dtype::Bf16 => KvCache::Bf16(names.map(|name| pass.external(name, elements))),
            }
        });
        let layers = layers.collect();
        let position = builder.pass.control::<u32>("position");
        Self { layers, position, count: None, form }
    }

    fn shape(&self, builder: &Builder) -> CacheShape {
        let model = &builder.config.model;
        CacheShape {
            capacity: self.form.length,
            heads: model.heads,
            kv_heads: model.kv_heads,
            head_dim: model.head_dim(),
        }
    }

    /// What the pass can see of `layer`.
    fn held(&self, layer: usize, shape: CacheShape) -> LayerCache {
        self.layers[layer].first(shape.capacity * shape.kv_heads * shape.head_dim)
    }
}

/// Appends the attention of one token from its projections on: it reads what the cache holds.
pub(super) fn attend_alone(
    builder: &mut Builder,
    (cache, layer): (&Cache, usize),
    (qkv, norm_rope): ([QkvProjection<BufferId>; 3], QkNormRope<BufferId>),
    scale: f32,
) -> Result<Slice<f32>> {
    let (shape, position) = (cache.shape(builder), cache.position);
    let caches = cache.held(layer, shape);
    let runs = shape.heads * shape.splits();
    let partials = builder.transient("runs", runs * shape.head_dim);
    let stats = builder.transient("run_stats", runs * 2);
    let attention =
        DecodeAttention { qkv, norm_rope, caches, partials, stats, position, shape, scale };
    builder.launch(attention.launch())?;
    let out = builder.transient("out", shape.heads * shape.head_dim);
    builder.launch(DecodeAttentionCombine { partials, stats, out, position, shape }.launch())?;
    Ok(out)
}

/// Appends the attention of several new tokens, whose keys and values enter the cache of `layer`.
pub(super) fn attend(
    builder: &mut Builder,
    (cache, layer): (&Cache, usize),
    [q, k, v]: [Slice<f32>; 3],
    scale: f32,
) -> Result<Slice<f32>> {
    let shape = cache.shape(builder);
    let caches = cache.held(layer, shape);
    let (start, count) = (cache.position, cache.count);
    builder.launch(CacheAppend { keys: k, values: v, caches, start, count, shape }.launch())?;
    let out = builder.transient("out", q.len());
    Question { q, caches, out, position: cache.position, shape, scale }.of_several(builder)?;
    Ok(out)
}

/// What the new tokens ask of the cache.
#[derive(Clone, Copy)]
struct Question {
    q: Slice<f32>,
    caches: LayerCache,
    out: Slice<f32>,
    position: Slice<u32>,
    shape: CacheShape,
    scale: f32,
}

impl Question {
    /// Several tokens attend by products over everything that the pass can see. Over a cache in
    /// bf16 they are products in bf16, whatever those of the layers are.
    fn of_several(self, builder: &mut Builder) -> Result<()> {
        let Self { q, caches, out, position: start, shape, scale } = self;
        let compute = match caches {
            KvCache::F32(_) => builder.compute(),
            KvCache::Bf16(_) => DType::Bf16,
        };
        let [keys, values] = caches.views();
        let (queries, heads, width) = (builder.rows(), shape.heads, shape.capacity);
        let scores: Slice<f32> = builder.transient("scores", heads * queries * width);
        let product = CacheScores { q, keys, scores, queries, shape, scale };
        builder.launch(product.launch_in(compute))?;
        let softmax: CacheSoftmax<BufferId> =
            CacheSoftmax { values: scores, start, heads, queries, width };
        builder.launch(softmax.launch())?;
        let product = CacheValues { probs: scores, values, out, queries, shape };
        builder.launch(product.launch_in(compute))
    }
}
