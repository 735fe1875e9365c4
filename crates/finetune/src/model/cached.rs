//! Attention over the keys and values of the tokens before, which a cache keeps.

use retrograph_kernels::ops::{
    CacheAppend, CacheAttention, CacheAttentionSum, CacheScores, CacheShape, CacheSoftmax,
    CacheValues,
};
use retrograph_runtime::{BufferId, Slice};

use super::builder::Builder;
use crate::error::Result;

/// The buffers of one layer's keys and values, `[room, kv_heads, head_dim]` each.
pub type LayerCache = [Slice<f32>; 2];

/// The cache as a pass sees it.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    pub(super) layers: Vec<LayerCache>,
    /// Control: the position of the first new token.
    pub(super) position: Slice<u32>,
    /// Control: how many of the new tokens count; without it, all.
    pub(super) count: Option<Slice<u32>>,
    /// Positions that the pass can see.
    pub(super) length: usize,
    /// Positions that the buffers have room for.
    pub(super) room: usize,
}

impl Cache {
    /// Declares the buffers of every layer, and the position. `length` of `room` positions can be
    /// seen.
    pub(super) fn declare(builder: &mut Builder, [length, room]: [usize; 2]) -> Self {
        let width = builder.config.model.kv_width();
        let pass = &mut builder.pass;
        let layers = (0..builder.config.model.layers).map(|layer| {
            let name = |part| format!("cache.{layer}.{part}");
            ["keys", "values"].map(|part| pass.external(name(part), room * width))
        });
        let layers = layers.collect();
        let position = builder.pass.control::<u32>("position");
        Self { layers, position, count: None, length, room }
    }

    fn shape(&self, builder: &Builder) -> CacheShape {
        let model = &builder.config.model;
        CacheShape {
            length: self.length,
            heads: model.heads,
            kv_heads: model.kv_heads,
            head_dim: model.head_dim(),
        }
    }
}

/// Appends the attention of the new tokens, whose keys and values enter the cache of `layer`.
pub(super) fn attend(
    builder: &mut Builder,
    (cache, layer): (&Cache, usize),
    [q, k, v]: [Slice<f32>; 3],
    scale: f32,
) -> Result<Slice<f32>> {
    let shape = cache.shape(builder);
    let seen = 0..shape.length * shape.kv_heads * shape.head_dim;
    let [keys, values] = cache.layers[layer].map(|buffer| buffer.slice(seen.clone()));
    builder.launch(
        CacheAppend {
            keys: k,
            values: v,
            key_cache: keys,
            value_cache: values,
            start: cache.position,
            count: cache.count,
            shape,
        }
        .launch(),
    )?;
    let out = builder.transient("out", q.len());
    let question = Question { q, keys, values, out, position: cache.position, shape, scale };
    if builder.rows() == 1 { question.of_one(builder) } else { question.of_several(builder) }?;
    Ok(out)
}

/// What the new tokens ask of the cache.
#[derive(Clone, Copy)]
struct Question {
    q: Slice<f32>,
    keys: Slice<f32>,
    values: Slice<f32>,
    out: Slice<f32>,
    position: Slice<u32>,
    shape: CacheShape,
    scale: f32,
}

impl Question {
    /// One token reads what the cache holds.
    fn of_one(self, builder: &mut Builder) -> Result<()> {
        let Self { q, keys, values, out, position, shape, scale } = self;
        let runs = shape.heads * shape.runs();
        let partials = builder.transient("runs", runs * shape.head_dim);
        let stats = builder.transient("run_stats", runs * 2);
        builder.launch(
            CacheAttention { q, keys, values, partials, stats, position, shape, scale }.launch(),
        )?;
        builder.launch(CacheAttentionSum { partials, stats, out, position, shape }.launch())
    }

    /// Several tokens attend by products over everything that the pass can see.
    fn of_several(self, builder: &mut Builder) -> Result<()> {
        let Self { q, keys, values, out, position: start, shape, scale } = self;
        let (queries, heads, width) = (builder.rows(), shape.heads, shape.length);
        let scores: Slice<f32> = builder.transient("scores", heads * queries * width);
        let (compute, product) =
            (builder.compute(), CacheScores { q, keys, scores, queries, shape, scale });
        builder.launch(product.launch_in(compute))?;
        let softmax: CacheSoftmax<BufferId> =
            CacheSoftmax { values: scores, start, heads, queries, width };
        builder.launch(softmax.launch())?;
        let product = CacheValues { probs: scores, values, out, queries, shape };
        builder.launch(product.launch_in(compute))
    }
}
