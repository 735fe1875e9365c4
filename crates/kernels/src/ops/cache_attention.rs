//! Attention of one new token over a cache: the positions in runs, and the runs added.
//!
//! Only what the cache holds is read, in f32 or bf16; everything is computed in f32.

use super::cache::CacheShape;
use super::cache_append::CachePair;
use super::geometry::linear;
use super::{f32, pointer, u32};
use crate::checks::Check;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, View};

static PARAMETERS: &[Parameter] = &[
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
];

/// Kernel of [`CacheAttention`].
pub static CACHE_ATTENTION: Kernel = Kernel {
    name: "cache_attention",
    image: "cache_attention",
    parameters: PARAMETERS,
    entries: &["cache_attention"],
    dispatch: |problem, _| dispatch("cache_attention", problem),
};

/// Kernel of [`CacheAttention`] over caches in bf16.
pub static CACHE_ATTENTION_BF16: Kernel = Kernel {
    name: "cache_attention_bf16",
    image: "cache_attention",
    parameters: PARAMETERS,
    entries: &["cache_attention_bf16"],
    dispatch: |problem, _| dispatch("cache_attention_bf16", problem),
};

/// A block for each head and run.
fn dispatch(entry: &'static str, problem: &Problem) -> Dispatch {
    let [heads, runs, ..] = problem.sizes;
    Dispatch { grid: [heads, runs, 1], ..linear(entry, 1, 128) }
}

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

/// The attention of one token at `position` over the positions up to it, by runs: for each run the
/// sum of values weighed by `exp(score − maximum of the run)`, the maximum and the sum of the
/// weights. [`CacheAttentionSum`] makes the output of them.
#[derive(Clone, Copy, Debug)]
pub struct CacheAttention<B> {
    /// `[heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[length, kv_heads, head_dim]` each, read.
    pub caches: CachePair<B>,
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
        let Self { q, caches, partials, stats, position, shape, scale } = self;
        let check = Check(CACHE_ATTENTION.name);
        let [keys, values] = caches.stored();
        shape.check(check, [("keys", keys), ("values", values)])?;
        check.length("q", q, check.product("q", &[shape.heads, shape.head_dim])?)?;
        let [heads, runs] = by_runs(check, shape, (partials, stats, position))?;
        let mut arguments = vec![
            Argument::read(q),
            keys.arguments().0,
            values.arguments().0,
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
        let kernel = match caches {
            CachePair::F32(_) => &CACHE_ATTENTION,
            CachePair::Bf16(_) => &CACHE_ATTENTION_BF16,
        };
        Ok(Launch { kernel, problem, arguments })
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
