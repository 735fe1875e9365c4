//! Attention of one new token over a cache, from its projections on: the positions in runs, and the
//! runs added.
//!
//! Only what the cache holds is read, in f32 or bf16; everything is computed in f32.

use super::cache::CacheShape;
use super::cache_append::CachePair;
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, View};

static PARAMETERS: &[Parameter] = &[
    pointer("q"),
    pointer("q_low"),
    pointer("q_up"),
    pointer("k"),
    pointer("k_low"),
    pointer("k_up"),
    pointer("v"),
    pointer("v_low"),
    pointer("v_up"),
    pointer("q_gamma"),
    pointer("k_gamma"),
    pointer("cos"),
    pointer("sin"),
    pointer("keys"),
    pointer("values"),
    pointer("partials"),
    pointer("stats"),
    pointer("position"),
    u32("capacity"),
    u32("kv_heads"),
    u32("group"),
    u32("run"),
    u32("head_dim"),
    u32("rank"),
    u32("positions"),
    f32("low_scale"),
    f32("eps"),
    f32("scale"),
];

/// Kernel of [`CacheAttention`].
pub static CACHE_ATTENTION: Kernel = Kernel {
    name: "decode_attention",
    image: "decode_attention",
    parameters: PARAMETERS,
    entries: &["decode_attention"],
    dispatch: |problem, _| dispatch("decode_attention", problem),
};

/// Kernel of [`CacheAttention`] over caches in bf16.
pub static CACHE_ATTENTION_BF16: Kernel = Kernel {
    name: "decode_attention_bf16",
    image: "decode_attention",
    parameters: PARAMETERS,
    entries: &["decode_attention_bf16"],
    dispatch: |problem, _| dispatch("decode_attention_bf16", problem),
};

/// A block for each head and run.
fn dispatch(entry: &'static str, problem: &Problem) -> Dispatch {
    let [heads, runs, ..] = problem.sizes;
    Dispatch { grid: [heads, runs, 1], ..linear(entry, 1, 256) }
}

/// The widest head that a token can attend with.
const WIDEST: usize = 512;

/// What a low-rank update adds to a projection: `scale · up · low`.
#[derive(Clone, Copy, Debug)]
pub struct LowRankUp<B> {
    /// `rank` elements, read.
    pub low: View<B, f32>,
    /// `outputs × rank`, read.
    pub up: View<B, f32>,
    /// The factor, the same for all of a token.
    pub scale: f32,
}

/// A projection of the new token.
#[derive(Clone, Copy, Debug)]
pub struct Projected<B> {
    /// `[heads, head_dim]`, read: without the update.
    pub x: View<B, f32>,
    /// The update that is still to be added.
    pub update: Option<LowRankUp<B>>,
}

impl<B> From<View<B, f32>> for Projected<B> {
    fn from(x: View<B, f32>) -> Self {
        Self { x, update: None }
    }
}

/// What becomes of query and key before they are multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Turned<B> {
    /// The gains of the norms of each head of query and key, `head_dim` elements each, read.
    pub gammas: [Option<View<B, f32>>; 2],
    /// What is added to the mean of their squares.
    pub eps: f32,
    /// `[positions, head_dim ÷ 2]` each, read: cosines and sines, see [`crate::ops::rope_tables`].
    pub tables: [View<B, f32>; 2],
    /// Positions that the tables have; those past them take the last row.
    pub positions: usize,
}

/// The attention of one token at `position` over the positions up to it, by runs: for each run the
/// sum of values weighed by `exp(score − maximum of the run)`, the maximum and the sum of the
/// weights. [`CacheAttentionSum`](crate::ops::CacheAttentionSum) makes the output of them.
///
/// The token's own key and value are written to the cache at `position`, where there is a place for
/// them, rounded as [`CacheAppend`](crate::ops::CacheAppend) does. Queries and keys are normed where
/// there is a gain, and turned as [`Rope`](crate::ops::Rope) does.
#[derive(Clone, Copy, Debug)]
pub struct CacheAttention<B> {
    /// Query, key and value of the token: `heads` heads, and twice `kv_heads`.
    pub projected: [Projected<B>; 3],
    /// Norms and rotation of query and key.
    pub turned: Turned<B>,
    /// `[length, kv_heads, head_dim]` each, read, and written at the position.
    pub caches: CachePair<B>,
    /// `[heads, runs, head_dim]`, written for the runs that have positions.
    pub partials: View<B, f32>,
    /// `[heads, runs, 2]`, written likewise: maximum and sum.
    pub stats: View<B, f32>,
    /// The position of the token, one element, read.
    pub position: View<B, u32>,
    /// The sizes; heads are even and at most 512 wide.
    pub shape: CacheShape,
    /// The factor of the scores, by custom 1/√head_dim.
    pub scale: f32,
}

/// The arguments of projections: pointers, rank and factor of their updates.
struct Projections<B> {
    arguments: Vec<Argument<B>>,
    rank: Argument<B>,
    scale: Argument<B>,
}

impl<B: Copy> CacheAttention<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { turned, caches, partials, stats, position, shape, scale, .. } = self;
        let check = Check(CACHE_ATTENTION.name);
        let [keys, values] = caches.stored();
        shape.check(check, [("keys", keys), ("values", values)])?;
        caches.check(check, shape.width())?;
        let head_dim = shape.head_dim;
        let rule = "heads are even and at most 512 wide";
        check.rule(head_dim.is_multiple_of(2) && head_dim <= WIDEST, rule, (head_dim, WIDEST))?;
        let [heads, runs] = by_runs(check, shape, (partials, stats, position))?;
        let Projections { mut arguments, rank, scale: low_scale } = self.projections(check)?;
        arguments.extend(turned.arguments(check, head_dim)?);
        arguments.extend(caches.updated());
        arguments.extend([Argument::write(partials), Argument::write(stats)]);
        arguments.push(Argument::read(position));
        for (what, size) in [
            ("the length", shape.length),
            ("kv_heads", shape.kv_heads),
            ("the heads of a group", shape.heads / shape.kv_heads),
            ("the positions of a run", shape.run()),
            ("head_dim", head_dim),
        ] {
            arguments.push(Argument::U32(check.size(what, size)?));
        }
        arguments.push(rank);
        arguments.push(Argument::U32(check.size("positions", turned.positions)?));
        arguments.push(low_scale);
        arguments.extend([turned.eps, scale].map(Argument::f32));
        let kernel = match caches {
            CachePair::F32(_) => &CACHE_ATTENTION,
            CachePair::Bf16(_) => &CACHE_ATTENTION_BF16,
        };
        Ok(Launch { kernel, problem: Problem::from([heads, runs]), arguments })
    }

    /// The arguments of all three projections.
    fn projections(&self, check: Check) -> Result<Projections<B>, KernelError> {
        let CacheShape { heads, kv_heads, head_dim, .. } = self.shape;
        let mut updates = self.projected.iter().filter_map(|projected| projected.update);
        let first = updates.next();
        let rank = first.map_or(0, |update| update.low.len());
        let scale = first.map_or(0.0, |update| update.scale);
        let mut arguments = Vec::new();
        let heads = [("q", heads), ("k", kv_heads), ("v", kv_heads)];
        for (Projected { x, update }, (name, heads)) in self.projected.iter().zip(heads) {
            let outputs = check.product("heads × head_dim", &[heads, head_dim])?;
            check.length(name, *x, outputs)?;
            arguments.push(Argument::read(*x));
            let Some(update) = update else {
                arguments.extend([Argument::Null, Argument::Null]);
                continue;
            };
            check.length("low", update.low, rank)?;
            check.length("up", update.up, check.product("outputs × rank", &[outputs, rank])?)?;
            let same = update.scale.to_bits() == scale.to_bits();
            check.rule(same, "all updates of a token have one factor", (rank, outputs))?;
            arguments.extend([update.low, update.up].map(Argument::read));
        }
        let (rank, scale) = (Argument::U32(check.size("rank", rank)?), Argument::f32(scale));
        Ok(Projections { arguments, rank, scale })
    }
}

impl<B: Copy> Turned<B> {
    fn arguments(self, check: Check, head_dim: usize) -> Result<[Argument<B>; 4], KernelError> {
        let Self { gammas, eps, tables: [cos, sin], positions } = self;
        for gamma in gammas.into_iter().flatten() {
            check.length("gamma", gamma, head_dim)?;
        }
        check.constant("eps", eps, (eps >= 0.0, "not negative"))?;
        check.rule(positions > 0, "the tables have a position", (positions, 1))?;
        let angles = check.product("positions × pairs", &[positions, head_dim / 2])?;
        check.length("cos", cos, angles)?;
        check.length("sin", sin, angles)?;
        let [q, k] = gammas.map(|gamma| gamma.map_or(Argument::Null, Argument::read));
        Ok([q, k, Argument::read(cos), Argument::read(sin)])
    }
}

/// Checks what the kernels of one token share, and gives heads and runs.
pub(crate) fn by_runs<B: Copy>(
    check: Check,
    shape: CacheShape,
    (partials, stats, position): (View<B, f32>, View<B, f32>, View<B, u32>),
) -> Result<[u32; 2], KernelError> {
    let (heads, runs) = (shape.heads, shape.runs());
    let some = runs > 0 && shape.head_dim > 0;
    check.rule(some, "there are positions and elements", (shape.length, shape.head_dim))?;
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
