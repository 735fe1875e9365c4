//! Attention of new tokens over a cache of the keys and values of all tokens before.
//!
//! A cache is `[length, kv_heads, head_dim]`: a token's place does not depend on the length, so
//! that a shorter cache is the beginning of a longer one. Several new tokens attend by products
//! ([`CacheScores`], [`CacheSoftmax`](super::CacheSoftmax), [`CacheValues`]), a single one by a
//! kernel that reads only what the cache holds ([`CacheAttention`], [`CacheAttentionSum`]).

use super::attention::{SCORES, SCORES_BF16, Step, VALUES, VALUES_BF16};
use super::geometry::linear;
use super::product::{Sizes, Strides};
use super::stored::{Compute, Family};
use super::tiles::Layout;
use super::{f32, pointer, u32};
use crate::checks::Check;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`CacheAppend`].
pub static CACHE_APPEND: Kernel = Kernel {
    name: "cache_append",
    image: "cache_append",
    parameters: &[
        pointer("keys"),
        pointer("values"),
        pointer("key_cache"),
        pointer("value_cache"),
        pointer("start"),
        pointer("count"),
        u32("elements"),
        u32("width"),
        u32("capacity"),
    ],
    entries: &["cache_append"],
    dispatch: |problem, _| linear("cache_append", problem.sizes[0].div_ceil(256), 256),
};

/// Kernel of [`CacheAttention`].
pub static CACHE_ATTENTION: Kernel = Kernel {
    name: "cache_attention",
    image: "cache_attention",
    parameters: &[
        pointer("q"),
        pointer("keys"),
        pointer("values"),
        pointer("partials"),
        pointer("stats"),
        pointer("position"),
        u32("capacity"),
        u32("kv_heads"),
        u32("group"),
        u32("head_dim"),
        u32("run"),
        f32("scale"),
    ],
    entries: &["cache_attention"],
    dispatch: |problem, _| {
        let [heads, runs, ..] = problem.sizes;
        Dispatch { grid: [heads, runs, 1], ..linear("cache_attention", 1, 128) }
    },
};

/// Kernel of [`CacheAttentionSum`].
pub static CACHE_ATTENTION_SUM: Kernel = Kernel {
    name: "cache_attention_sum",
    image: "cache_attention",
    parameters: &[
        pointer("partials"),
        pointer("stats"),
        pointer("out"),
        pointer("position"),
        u32("capacity"),
        u32("head_dim"),
        u32("run"),
        u32("runs"),
    ],
    entries: &["cache_attention_sum"],
    dispatch: |problem, _| linear("cache_attention_sum", problem.sizes[0], 128),
};

/// The sizes of a cache and of those who ask it. `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Positions that the cache has room for.
    pub length: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl CacheShape {
    /// Elements of a token in the cache.
    fn width(self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Positions that one block attends to. It depends on the length only where that is so long
    /// that there would be too many runs to add, so that lengths below give the same bits.
    fn run(self) -> usize {
        if self.length <= 16_384 { 64 } else { 256 }
    }

    /// Runs into which the positions are divided: [`CacheAttention`] needs this many partial sums
    /// for each head.
    pub fn runs(self) -> usize {
        self.length.div_ceil(self.run())
    }

    /// Checks the heads, and the length of both caches.
    fn check<B: Copy>(
        self,
        check: Check,
        caches: [(&'static str, View<B, f32>); 2],
    ) -> Result<(), KernelError> {
        let Self { length, heads, kv_heads, head_dim } = self;
        let divides = kv_heads > 0 && heads % kv_heads == 0;
        let rule = "heads must be a multiple of kv_heads, which must not be 0";
        check.rule(divides, rule, (heads, kv_heads))?;
        let elements = check.product("the cache", &[length, kv_heads, head_dim])?;
        check.size("the cache", elements)?;
        for (operand, cache) in caches {
            check.length(operand, cache, elements)?;
        }
        Ok(())
    }

    /// One product per query head.
    fn per_head(self, [m, n, k]: [usize; 3]) -> Sizes {
        let b_group = self.heads / self.kv_heads;
        Sizes { m, n, k, batches: 1, heads: self.heads, b_group, reduce: 1 }
    }

    /// The strides of rows of `heads` heads.
    fn by_head(self, heads: usize) -> Strides {
        let leading = heads * self.head_dim;
        Strides { leading, head: self.head_dim, ..Strides::default() }
    }

    /// The strides of `[heads, queries, length]`.
    fn scores(self, queries: usize) -> Strides {
        Strides { leading: self.length, head: queries * self.length, ..Strides::default() }
    }
}

/// Writes the keys and values of new tokens into their caches, from position `start` on. Tokens
/// past `count` and places past the end are left out.
#[derive(Clone, Copy, Debug)]
pub struct CacheAppend<B> {
    /// `[tokens, kv_heads, head_dim]`, read.
    pub keys: View<B, f32>,
    /// `[tokens, kv_heads, head_dim]`, read.
    pub values: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, written in part.
    pub key_cache: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, written in part.
    pub value_cache: View<B, f32>,
    /// The position of the first token, one element, read.
    pub start: View<B, u32>,
    /// How many tokens count, one element, read; all without it.
    pub count: Option<View<B, u32>>,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy> CacheAppend<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { keys, values, key_cache, value_cache, start, count, shape } = self;
        let check = Check(CACHE_APPEND.name);
        shape.check(check, [("key_cache", key_cache), ("value_cache", value_cache)])?;
        let width = shape.width().max(1);
        let whole = keys.len().is_multiple_of(width);
        check.rule(whole, "keys and values are whole tokens", (keys.len(), width))?;
        check.length("values", values, keys.len())?;
        check.length("start", start, 1)?;
        if let Some(count) = count {
            check.length("count", count, 1)?;
        }
        let elements = check.size("the number of elements", keys.len())?;
        let width = check.size("the elements of a token", width)?;
        let capacity = check.size("the length", shape.length)?;
        let arguments = vec![
            Argument::read(keys),
            Argument::read(values),
            Argument::update(key_cache),
            Argument::update(value_cache),
            Argument::read(start),
            count.map_or(Argument::Null, Argument::read),
            Argument::U32(elements),
            Argument::U32(width),
            Argument::U32(capacity),
        ];
        Ok(Launch { kernel: &CACHE_APPEND, problem: Problem::from([elements]), arguments })
    }
}

/// scores = scale·q·kᵀ of new tokens with every position of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheScores<B> {
    /// `[queries, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read.
    pub keys: View<B, f32>,
    /// `[heads, queries, length]`, written.
    pub scores: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: CacheShape,
    /// The factor, by custom 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy> CacheScores<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { q, keys, scores, queries, shape, scale } = self;
        let check = Check(SCORES.name);
        shape.check(check, [("keys", keys); 2])?;
        let CacheShape { length, heads, head_dim, .. } = shape;
        check.length("q", q, check.product("q", &[queries, heads, head_dim])?)?;
        check.length("scores", scores, check.product("scores", &[heads, queries, length])?)?;
        Step {
            family: Family::of(&SCORES, &SCORES_BF16),
            compute,
            layout: Layout::Nt,
            operands: [
                (q, shape.by_head(heads)),
                (keys, shape.by_head(shape.kv_heads)),
                (scores, shape.scores(queries)),
            ],
            sizes: shape.per_head([queries, length, head_dim]),
            alpha: scale,
        }
        .launch()
    }
}

/// out = probs·v of new tokens over every position of the cache, which must hold finite numbers
/// also where the probability is 0.
#[derive(Clone, Copy, Debug)]
pub struct CacheValues<B> {
    /// `[heads, queries, length]`, read.
    pub probs: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read.
    pub values: View<B, f32>,
    /// `[queries, heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// New tokens.
    pub queries: usize,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy> CacheValues<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { probs, values, out, queries, shape } = self;
        let check = Check(VALUES.name);
        shape.check(check, [("values", values); 2])?;
        let CacheShape { length, heads, head_dim, .. } = shape;
        check.length("probs", probs, check.product("probs", &[heads, queries, length])?)?;
        check.length("out", out, check.product("out", &[queries, heads, head_dim])?)?;
        Step {
            family: Family::of(&VALUES, &VALUES_BF16),
            compute,
            layout: Layout::Nn,
            operands: [
                (probs, shape.scores(queries)),
                (values, shape.by_head(shape.kv_heads)),
                (out, shape.by_head(heads)),
            ],
            sizes: shape.per_head([queries, head_dim, length]),
            alpha: 1.0,
        }
        .launch()
    }
}

/// The attention of one token at `position` over the positions up to it, by runs: for each run the
/// sum of values weighed by `exp(score − maximum of the run)`, the maximum and the sum of the
/// weights. [`CacheAttentionSum`] makes the output of them.
#[derive(Clone, Copy, Debug)]
pub struct CacheAttention<B> {
    /// `[heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read.
    pub keys: View<B, f32>,
    /// `[length, kv_heads, head_dim]`, read.
    pub values: View<B, f32>,
    /// `[heads, runs, head_dim]`, written for the runs that have positions.
    pub partials: View<B, f32>,
    /// `[heads, runs, 2]`, written likewise: maximum and sum.
    pub stats: View<B, f32>,
    /// The position of the token, one element, read.
    pub position: View<B, u32>,
    /// The sizes.
    pub shape: CacheShape,
    /// The factor of the scores, by custom 1/√head_dim.
    pub scale: f32,
}

impl<B: Copy> CacheAttention<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { q, keys, values, partials, stats, position, shape, scale } = self;
        let check = Check(CACHE_ATTENTION.name);
        shape.check(check, [("keys", keys), ("values", values)])?;
        check.length("q", q, check.product("q", &[shape.heads, shape.head_dim])?)?;
        let [heads, runs] = by_runs(check, shape, (partials, stats, position))?;
        let mut arguments = vec![
            Argument::read(q),
            Argument::read(keys),
            Argument::read(values),
            Argument::write(partials),
            Argument::write(stats),
            Argument::read(position),
        ];
        for (what, size) in [
            ("the length", shape.length),
            ("kv_heads", shape.kv_heads),
            ("the heads of a group", shape.heads / shape.kv_heads),
            ("head_dim", shape.head_dim),
            ("the positions of a run", shape.run()),
        ] {
            arguments.push(Argument::U32(check.size(what, size)?));
        }
        arguments.push(Argument::f32(scale));
        let problem = Problem::from([heads, runs]);
        Ok(Launch { kernel: &CACHE_ATTENTION, problem, arguments })
    }
}

/// The output of attention from the runs of [`CacheAttention`], which are added in order.
#[derive(Clone, Copy, Debug)]
pub struct CacheAttentionSum<B> {
    /// `[heads, runs, head_dim]`, read.
    pub partials: View<B, f32>,
    /// `[heads, runs, 2]`, read.
    pub stats: View<B, f32>,
    /// `[heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// The position of the token, one element, read.
    pub position: View<B, u32>,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy> CacheAttentionSum<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { partials, stats, out, position, shape } = self;
        let check = Check(CACHE_ATTENTION_SUM.name);
        check.length("out", out, check.product("out", &[shape.heads, shape.head_dim])?)?;
        let [heads, runs] = by_runs(check, shape, (partials, stats, position))?;
        let mut arguments = vec![
            Argument::read(partials),
            Argument::read(stats),
            Argument::write(out),
            Argument::read(position),
        ];
        for (what, size) in [
            ("the length", shape.length),
            ("head_dim", shape.head_dim),
            ("the positions of a run", shape.run()),
        ] {
            arguments.push(Argument::U32(check.size(what, size)?));
        }
        arguments.push(Argument::U32(runs));
        Ok(Launch { kernel: &CACHE_ATTENTION_SUM, problem: Problem::from([heads]), arguments })
    }
}

/// Checks what the kernels of one token share, and gives heads and runs.
fn by_runs<B: Copy>(
    check: Check,
    shape: CacheShape,
    (partials, stats, position): (View<B, f32>, View<B, f32>, View<B, u32>),
) -> Result<[u32; 2], KernelError> {
    let (heads, runs) = (shape.heads, shape.runs());
    let elements = check.product("heads × runs × head_dim", &[heads, runs, shape.head_dim])?;
    check.size("heads × runs × head_dim", elements)?;
    check.length("partials", partials, elements)?;
    check.length("stats", stats, check.product("heads × runs", &[heads, runs, 2])?)?;
    let start = stats.byte_range().start;
    check.rule(start.is_multiple_of(8), "stats start at a multiple of 8 bytes", (start, 8))?;
    check.length("position", position, 1)?;
    let runs = check.at_most("the number of runs", runs, 65_535)?;
    Ok([check.size("heads", heads)?, runs])
}
