//! Attention of one new token over a cache of keys and values, from its projections on.
//!
//! ```text
//! q, k, v = projections (+ low_scale · up · low)     where they have a low-rank update
//! q, k    = rope(norm(q)), rope(norm(k))             each head, where it has a norm
//! s_j     = scale · q_h · key_j                      keys and values of head h ÷ group
//! out_h   = Σ_j exp(s_j − max s) · value_j ÷ Σ_j exp(s_j − max s)
//! ```
//!
//! `cache_attention` computes this for each run of `run` positions with the maximum of the run;
//! `cache_attention_sum` brings the runs to one maximum and adds them. Position `*position` is that
//! of the new token, whose key and value enter the cache, where there is a place for them. What
//! lies behind it in the cache is not read. Keys and values are f32 or, in `cache_attention_bf16`,
//! bf16, which the new ones are rounded to; everything is computed in f32.
//!
//! **Grid.** `cache_attention`: block (h, r) of eight warps has run r of head h; runs past the
//! length end at once. A warp takes every eighth position, four at a time, its lanes the quads of a
//! head. What the new token has is computed by every block that needs it: q by all, its key and
//! value by those of its run, of which the first of each group writes them to the cache. Meanwhile
//! the old positions are on their way to the L2 cache.
//! `cache_attention_sum`: a block of 128 threads for each head, one thread for each element.
//!
//! **Determinism.** A warp adds its positions in ascending order, the newest last; the warps are
//! added in order, and so are the runs. Which position belongs to which run depends on `run` alone.

mod combine;
mod new_token;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Shared, Value};

use crate::primitives::pdl;
use crate::primitives::vec4::{F32x4, Vec4};
use new_token::Newest;

/// Warps of a block.
const WARPS: u32 = 8;
/// Positions that a warp loads side by side: all that it has of a run of 64.
const BATCH: u32 = 8;
const BATCHED: [u32; BATCH as usize] = [0, 1, 2, 3, 4, 5, 6, 7];
/// The most positions of a run.
const LONGEST_RUN: usize = 256;
/// Elements of a head that the warps hold side by side.
const SLAB: u32 = 128;
/// Bytes of a line of memory.
const LINE: u32 = 128;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    let floats =
        runs("cache_attention", (target, 4), |vec4, row| vec4.load(Ptr::from_address(row)));
    let halves = runs("cache_attention_bf16", (target, 2), |vec4, row| vec4.load_bf16(row));
    ModuleBuilder::new(target).entry(floats).entry(halves).entry(combine::entry(target)).build()
}

/// The entry for caches whose elements have so many bytes, of which `load` gives a quad of a row.
fn runs(
    name: &str,
    (target, bytes): (SmTarget, u32),
    load: impl for<'k> Fn(Vec4<'k>, Value<'k, u64>) -> F32x4<'k>,
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        // Room for what reads its weights ahead.
        // On sm_120 three would have to spill.
        k.min_blocks(if target.number < 120 { 3 } else { 2 });
        let newest = Newest::declare(k, (target, bytes));
        let partials = k.pointer::<f32>("partials");
        let stats = k.pointer::<f32>("stats");
        let position = k.pointer::<u32>("position");
        let capacity = k.param::<u32>("capacity");
        let kv_heads = k.param::<u32>("kv_heads");
        let group = k.param::<u32>("group");
        let run = k.param::<u32>("run");
        let newest = newest.sized(k);
        let scale = k.param::<f32>("scale");
        pdl::launch_dependents(k, target);
        pdl::wait(k, target);

        let (head, number, head_dim) = (k.ctaid_x(), k.ctaid_y(), newest.head_dim);
        // What does not depend on the position is computed while that is on its way.
        let place = position.load(0);
        newest.ask(head);
        let length = (place + 1).min(capacity);
        let first = number * run;
        k.return_if(first.ge(length));
        let count = (length - first).min(run);
        let (lane, warp) = (k.lane(), k.warp());
        let width = kv_heads * head_dim;
        let shift = bytes.ilog2();
        let start = (first.mul_wide(width) + (head / group * head_dim).cast::<u64>()) << shift;
        let [keys, values] = newest.caches.map(|cache| cache + start);
        // A quad of a row has four elements.
        let rows_aligned = ((keys | values) & u64::from(4 * bytes - 1)).eq(0) & (width & 3).eq(0);
        // The newest position is the last of the last run, unless the cache is full.
        let last = place.lt(capacity) & (first + count).eq(length);
        let old = last.select(count - 1, count);
        let rows = [keys, values].map(|row| row + (old.mul_wide(width) << shift));
        // The old positions are on their way while the new one is computed.
        let bytes_of_head = head_dim << shift;
        k.range(warp * 8 + (lane >> 2), old, 8 * WARPS, |j| {
            k.range((lane & 3) * LINE, bytes_of_head, 4 * LINE, |byte| {
                let byte = (j.mul_wide(width) << shift) + byte.cast::<u64>();
                for row in [keys, values] {
                    Ptr::<u32>::from_address(row + byte).prefetch();
                }
            });
        });
        newest.prepare((head, group), place, (last, rows));

        let scores = k.shared::<f32>("scores", LONGEST_RUN);
        k.range(warp, old, WARPS * BATCH, |j| {
            let places = BATCHED.map(|ahead| j + ahead * WARPS);
            let rows = places.map(|j| keys + (j.min(old - 1).mul_wide(width) << shift));
            let dots = places.map(|_| k.var(0.0f32));
            k.range(lane * 4, head_dim, 128, |i| {
                let vec4 = Vec4::new(i, head_dim, rows_aligned);
                let (q, keys) = (newest.q.load_vec4(i), rows.map(|row| load(vec4, row)));
                for (dot, key) in dots.iter().zip(keys) {
                    dot.update(|dot| (0..4).fold(dot, |dot, i| q[i].fma(key[i], dot)));
                }
            });
            for (j, dot) in places.into_iter().zip(dots) {
                let dot = k.warp_sum(dot.get());
                k.when(lane.eq(0) & j.lt(old), || scores.store(j, dot * scale));
            }
        });
        k.when(last & warp.eq(WARPS - 1), || {
            let dot = k.warp_sum(newest.score());
            k.when(lane.eq(0), || scores.store(old, dot * scale));
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
            let vec4 = Vec4::new(i, head_dim, rows_aligned);
            let sums = [(); 4].map(|()| k.var(0.0f32));
            k.range(warp, old, WARPS * BATCH, |j| {
                let places = BATCHED.map(|ahead| j + ahead * WARPS);
                let rows =
                    places.map(|j| load(vec4, values + (j.min(old - 1).mul_wide(width) << shift)));
                for (j, value) in places.into_iter().zip(rows) {
                    k.when(j.lt(old), || {
                        let weight = scores.load(j);
                        for (sum, value) in sums.iter().zip(value) {
                            sum.update(|sum| weight.fma(value, sum));
                        }
                    });
                }
            });
            k.when(last & warp.eq(WARPS - 1) & i.lt(head_dim), || {
                let (weight, value) = (scores.load(old), newest.v.load_vec4(i));
                for (sum, value) in sums.iter().zip(value) {
                    sum.update(|sum| weight.fma(value, sum));
                }
            });
            held.store_vec4(warp * SLAB + lane * 4, sums.map(|sum| sum.get()));
            k.barrier();
            let (thread, i) = (k.tid_x(), slab + k.tid_x());
            k.when(thread.lt(SLAB) & i.lt(head_dim), || {
                let warps = (0..WARPS).map(|warp| held.load(thread + warp * SLAB));
                let total = warps.reduce(|sum, part| sum + part).expect("there is a warp");
                partial.store(i, total);
            });
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
