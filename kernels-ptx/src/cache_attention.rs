//! Attention of one query per head over a cache of keys and values.
//!
//! ```text
//! s_j   = scale · q_h · key_j          j < length, keys and values of head h ÷ group
//! out_h = Σ_j exp(s_j − max s) · value_j ÷ Σ_j exp(s_j − max s)
//! ```
//!
//! `cache_attention` computes this for each run of `run` positions with the maximum of the run;
//! `cache_attention_sum` brings the runs to one maximum and adds them. Position `*position` is the
//! newest, so that the length is one more. What lies behind it in the cache is not read. Keys and
//! values are f32 or, in `cache_attention_bf16`, bf16; everything is computed in f32.
//!
//! **Grid.** `cache_attention`: block (h, r) of four warps has run r of head h; runs past the
//! length end at once. A warp takes every fourth position, its lanes the quads of a head.
//! `cache_attention_sum`: a block of 128 threads for each head, one thread for each element.
//!
//! **Determinism.** A warp adds its positions in ascending order; the warps are added in order, and
//! so are the runs. Which position belongs to which run depends on `run` alone.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Shared, Value};

use crate::quad::{Floats, Quad};

/// Warps of a block.
const WARPS: u32 = 4;
/// The most positions of a run.
const LONGEST_RUN: usize = 256;
/// Elements of a head that the warps hold side by side.
const SLAB: u32 = 128;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    let floats = runs("cache_attention", 4, |quad, row| quad.load(Ptr::from_address(row)));
    let halves = runs("cache_attention_bf16", 2, |quad, row| quad.load_bf16(row));
    ModuleBuilder::new(target).entry(floats).entry(halves).entry(sum()).build()
}

/// The entry for caches whose elements have so many bytes, of which `load` gives a quad of a row.
fn runs(
    name: &str,
    bytes: u32,
    load: impl for<'k> Fn(Quad<'k>, Value<'k, u64>) -> Floats<'k>,
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        let q = k.pointer::<f32>("q");
        let keys = k.pointer::<f32>("keys");
        let values = k.pointer::<f32>("values");
        let partials = k.pointer::<f32>("partials");
        let stats = k.pointer::<f32>("stats");
        let position = k.pointer::<u32>("position");
        let capacity = k.param::<u32>("capacity");
        let kv_heads = k.param::<u32>("kv_heads");
        let group = k.param::<u32>("group");
        let head_dim = k.param::<u32>("head_dim");
        let run = k.param::<u32>("run");
        let scale = k.param::<f32>("scale");

        let (head, number) = (k.ctaid_x(), k.ctaid_y());
        let length = (position.load(0) + 1).min(capacity);
        let first = number * run;
        k.return_if(first.ge(length));
        let count = (length - first).min(run);
        let (lane, warp) = (k.lane(), k.warp());
        let width = kv_heads * head_dim;
        let start = first.mul_wide(width) + (head / group * head_dim).cast::<u64>();
        let shift = bytes.ilog2();
        let start = start << shift;
        let (q, keys, values) =
            (q.at(head * head_dim), keys.address() + start, values.address() + start);
        // A quad of q has 16 bytes, and one of a row four elements.
        let odd = (q.address() & 15) | ((keys | values) & u64::from(4 * bytes - 1));
        let rows_aligned = odd.eq(0) & (width & 3).eq(0);

        let scores = k.shared::<f32>("scores", LONGEST_RUN);
        k.range(warp, count, WARPS, |j| {
            let key = keys + (j.mul_wide(width) << shift);
            let dot = k.var(0.0f32);
            k.range(lane * 4, head_dim, 128, |i| {
                let quad = Quad::new(i, head_dim, rows_aligned);
                let (q, key) = (quad.load(q), load(quad, key));
                dot.update(|dot| (0..4).fold(dot, |dot, i| q[i].fma(key[i], dot)));
            });
            let dot = k.warp_sum(dot.get());
            k.when(lane.eq(0), || scores.store(j, dot * scale));
        });
        k.barrier();
        let max = weigh(k, scores, count);
        let sum = k.var(0.0f32);
        k.range(lane, count, 32, |j| sum.add_assign(scores.load(j)));
        let sum = k.warp_sum(sum.get());
        let place = head * k.nctaid_y() + number;
        k.when(k.tid_x().eq(0), || stats.store_vec2(place * 2, [max, sum]));

        let partial = partials.at(place.mul_wide(head_dim));
        let held = k.shared::<f32>("held", (WARPS * SLAB) as usize);
        // A head that is wider than a slab takes turns.
        k.range(0u32, head_dim, SLAB, |slab| {
            let i = slab + lane * 4;
            let quad = Quad::new(i, head_dim, rows_aligned);
            let sums = [(); 4].map(|()| k.var(0.0f32));
            k.range(warp, count, WARPS, |j| {
                let value = load(quad, values + (j.mul_wide(width) << shift));
                let weight = scores.load(j);
                for (sum, value) in sums.iter().zip(value) {
                    sum.update(|sum| weight.fma(value, sum));
                }
            });
            held.store_vec4(warp * SLAB + lane * 4, sums.map(|sum| sum.get()));
            k.barrier();
            let (thread, i) = (k.tid_x(), slab + k.tid_x());
            let warps = (0..WARPS).map(|warp| held.load(thread + warp * SLAB));
            let total = warps.reduce(|sum, part| sum + part).expect("there is a warp");
            k.when(i.lt(head_dim), || partial.store(i, total));
            k.barrier();
        });
    })
}

/// Replaces the scores by `exp(score − max)` and gives the maximum, known to every thread. Where
/// nothing is above −∞ the weights are 0.
fn weigh<'k>(k: &Kernel<'k>, scores: Shared<'k, f32>, count: Value<'k, u32>) -> Value<'k, f32> {
    let max = k.var(f32::NEG_INFINITY);
    k.range(k.lane(), count, 32, |j| max.update(|max| max.max(scores.load(j))));
    let max = k.warp_max(max.get());
    // Every warp has read all scores before one of them is replaced.
    k.barrier();
    let base = max.eq(f32::NEG_INFINITY).select(0.0, max);
    k.range(k.tid_x(), count, 32 * WARPS, |j| {
        scores.store(j, (scores.load(j) - base).exp());
    });
    k.barrier();
    max
}

fn sum() -> Entry {
    Kernel::build("cache_attention_sum", |k| {
        k.max_threads(128);
        let partials = k.pointer::<f32>("partials");
        let stats = k.pointer::<f32>("stats");
        let out = k.pointer::<f32>("out");
        let position = k.pointer::<u32>("position");
        let capacity = k.param::<u32>("capacity");
        let head_dim = k.param::<u32>("head_dim");
        let run = k.param::<u32>("run");
        let runs = k.param::<u32>("runs");

        let head = k.ctaid_x();
        let length = (position.load(0) + 1).min(capacity);
        let used = ((length + (run - 1)) / run).min(runs);
        let stats = stats.at(head * runs * 2);
        let partials = partials.at((head * runs).mul_wide(head_dim));
        let max = k.var(f32::NEG_INFINITY);
        k.range(0u32, used, 1, |r| max.update(|max| max.max(stats.load(r * 2))));
        let max = max.get();
        k.range(k.tid_x(), head_dim, 128, |i| {
            let (sum, total) = (k.var(0.0f32), k.var(0.0f32));
            k.range(0u32, used, 1, |r| {
                let [run_max, run_sum] = stats.load_vec2(r * 2);
                let weight = (run_max - max).exp();
                sum.update(|sum| weight.fma(run_sum, sum));
                let part = partials.load(r.mul_wide(head_dim) + i.cast::<u64>());
                total.update(|total| weight.fma(part, total));
            });
            out.store(head * head_dim + i, total.get() / sum.get());
        });
    })
}
