//! Decode attention: one new token of each sequence attends to its KV cache (split-KV, as in
//! FlashDecoding), fused with the epilogue of its projections, q/k norm, RoPE and the append to the
//! cache.
//!
//! ```text
//! q, k, v = projections (+ lora_scale · B · t)        with LoRA: t = A·x
//! q, k    = rope(norm(q)), rope(norm(k))             per head; norm is optional
//! s_j     = scale · q_h · key_j                      keys and values of head h ÷ group
//! out_h   = Σ_j exp(s_j − max s) · value_j ÷ Σ_j exp(s_j − max s)
//! ```
//!
//! `decode_attention` and `decode_attention_bf16` compute partial results for splits of `split_len`
//! positions, relative to the maximum of each split. `decode_attention_combine` rescales the splits
//! to a common maximum and adds them. The new token has position `*position`; its key and value are
//! written to the cache if there is capacity. Later positions of the cache and positions before the
//! last `window` are not read. The cache is f32 or bf16; arithmetic is f32, on the rounded new key
//! and value.
//!
//! **Grid.** Splits: block (h, r, t) of eight warps handles split r of head h of sequence t; blocks
//! past the length or before the window return at once. A block first prefetches the earlier
//! positions of its split into L2, then computes q of the new token. The blocks of the last split
//! also compute its key and value, and the first head of each group writes them. A warp takes every
//! eighth position, eight at a time, and its lanes the vec4s of a head. Combine: one block of 128
//! threads per head and sequence, one thread per element.
//!
//! **Determinism.** A warp adds its positions in ascending order, the new one last. Warps are added
//! in order, and so are splits. The assignment of positions to splits depends only on `split_len`.

mod combine;
mod new_token;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{
    DECODE_ATTENTION, DECODE_ATTENTION_BF16, DECODE_MAX_SPLIT_LEN, DECODE_THREADS,
    DecodeAttentionParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Shared, Value};

use crate::primitives::parameters::Declarations;
use crate::primitives::pdl;
use crate::primitives::registers::{Registers, registers, values};
use crate::primitives::vec4::{F32x4, Vec4};
use new_token::NewToken;

/// Warps of a block.
const WARPS: u32 = DECODE_THREADS / 32;
/// Positions of a warp in flight: all its positions in a split of 64.
const KEYS_IN_FLIGHT: u32 = 8;
const KEY_STEPS: [u32; KEYS_IN_FLIGHT as usize] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Elements of a head that a warp handles at a time.
const HEAD_CHUNK: u32 = 128;
/// Bytes of a cache line.
const CACHE_LINE: u32 = 128;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(splits(DECODE_ATTENTION.entry(), (target, DType::F32)))
        .entry(splits(DECODE_ATTENTION_BF16.entry(), (target, DType::Bf16)))
        .entry(combine::entry(target))
        .build()
}

/// The entry for caches with elements of type `dtype`, which computes the splits.
fn splits(name: &str, (target, dtype): (SmTarget, DType)) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        // Leaves resources for a successor that prefetches its weights. With three blocks, a thread
        // has 80 registers.
        k.min_blocks(if target.features().spills_at_80_registers { 2 } else { 3 });
        let parameters = DecodeAttentionParameters::declare(&mut Declarations(*k));
        let text = k.ctaid_z();
        let new_token = NewToken::new(k, (target, dtype), (&parameters, text));
        let DecodeAttentionParameters { partials, stats, position, capacity, .. } = parameters;
        let DecodeAttentionParameters { kv_heads, group, split_len, window, scale, .. } =
            parameters;
        pdl::launch_dependents(k, target);
        pdl::wait(k, target);

        let (head, split, head_dim) = (k.ctaid_x(), k.ctaid_y(), new_token.head_dim);
        // Computes independent values while the position is in flight.
        let position = position.load(text);
        new_token.project_query(head);
        let length = (position + 1).min(capacity);
        let (start, seen) = (split * split_len, position + 1);
        let first = start.max(seen - seen.min(window));
        let end = length.min(start + split_len);
        k.return_if(first.ge(end));
        let count = end - first;
        let (lane, warp) = (k.lane(), k.warp());
        let width = kv_heads * head_dim;
        let shift = dtype.bytes().ilog2();
        let start = (first.mul_wide(width) + (head / group * head_dim).cast::<u64>()) << shift;
        let [keys, values] = new_token.caches.map(|cache| cache + start);
        // A vec4 has four elements.
        let rows_aligned =
            ((keys | values) & u64::from(4 * dtype.bytes() - 1)).eq(0) & (width & 3).eq(0);
        // The new position is the last one of the last split, unless the cache is full.
        let is_new = position.lt(capacity) & (first + count).eq(length);
        let old = is_new.select(count - 1, count);
        let rows = [keys, values].map(|row| row + (old.mul_wide(width) << shift));
        let split_of_head = Split {
            k: *k,
            dtype,
            lane,
            warp,
            new_token: &new_token,
            head_dim,
            width,
            keys,
            values,
            rows_aligned,
            is_new,
            old,
        };
        split_of_head.prefetch();
        new_token.compute((head, group), position, (is_new, rows));

        let scores = k.shared::<f32>("scores", DECODE_MAX_SPLIT_LEN as usize);
        split_of_head.store_scores(scores, scale);
        k.barrier();
        let max = exponentials(k, scores, count);
        let sum = k.var(0.0f32);
        k.range(lane, count, 32, |j| sum.add_assign(scores.load(j)));
        let sum = k.warp_sum(sum.get());
        let partial_index = (text * k.nctaid_x() + head) * k.nctaid_y() + split;
        k.when(k.tid_x().eq(0), || stats.store_vec2(partial_index * 2, [max, sum]));
        split_of_head.add_values(scores, partials.at(partial_index.mul_wide(head_dim)));
    })
}

/// The positions of a split in the cache of one head.
struct Split<'a, 'k> {
    k: Kernel<'k>,
    /// Element type of the cache.
    dtype: DType,
    lane: Value<'k, u32>,
    warp: Value<'k, u32>,
    new_token: &'a NewToken<'k>,
    head_dim: Value<'k, u32>,
    /// Elements from one position to the next.
    width: Value<'k, u32>,
    /// Addresses of the first position.
    keys: Value<'k, u64>,
    values: Value<'k, u64>,
    rows_aligned: Pred<'k>,
    /// Whether the split also has the new token, and the number of its other positions.
    is_new: Pred<'k>,
    old: Value<'k, u32>,
}

impl<'k> Split<'_, 'k> {
    /// Whether this warp has the new token.
    fn has_new(&self) -> Pred<'k> {
        self.is_new & self.warp.eq(WARPS - 1)
    }

    /// Byte offset of position `j`.
    fn offset(&self, j: Value<'k, u32>) -> Value<'k, u64> {
        j.mul_wide(self.width) << self.dtype.bytes().ilog2()
    }

    /// Prefetches the old positions into L2.
    fn prefetch(&self) {
        let Self { k, lane, warp, .. } = *self;
        let bytes_of_head = self.head_dim << self.dtype.bytes().ilog2();
        k.range(warp * 8 + (lane >> 2), self.old, 8 * WARPS, |j| {
            k.range((lane & 3) * CACHE_LINE, bytes_of_head, 4 * CACHE_LINE, |byte| {
                let byte = self.offset(j) + byte.cast::<u64>();
                for row in [self.keys, self.values] {
                    Ptr::<u32>::from_address(row + byte).prefetch_l2();
                }
            });
        });
    }

    /// Stores the scaled dot products of the query and the keys of this warp.
    fn store_scores(&self, scores: Shared<'k, f32>, scale: Value<'k, f32>) {
        let Self { k, lane, old, new_token, .. } = *self;
        k.range(self.warp, old, WARPS * KEYS_IN_FLIGHT, |j| {
            let indices = KEY_STEPS.map(|step| j + step * WARPS);
            let rows = indices.map(|j| self.keys + self.offset(j.min(old - 1)));
            let dots = indices.map(|_| k.var(0.0f32));
            k.range(lane * 4, self.head_dim, 128, |i| {
                let vec4 = Vec4::new(i, self.head_dim, self.rows_aligned);
                let (q, keys) =
                    (new_token.q.load_vec4(i), rows.map(|row| vec4.load_as(self.dtype, row)));
                for (dot, key) in dots.iter().zip(keys) {
                    dot.update(|dot| (0..4).fold(dot, |dot, i| q[i].fma(key[i], dot)));
                }
            });
            for (j, dot) in indices.into_iter().zip(dots) {
                let dot = k.warp_sum(dot.get());
                k.when(lane.eq(0) & j.lt(old), || scores.store(j, dot * scale));
            }
        });
        k.when(self.has_new(), || {
            let dot = k.warp_sum(new_token.score());
            k.when(lane.eq(0), || scores.store(old, dot * scale));
        });
    }

    /// Writes the sum of the values, weighted by `weights`, to `partial`.
    fn add_values(&self, weights: Shared<'k, f32>, partial: Ptr<'k, f32>) {
        let Self { k, lane, warp, old, new_token, head_dim, .. } = *self;
        let warp_sums = k.shared::<f32>("warp_sums", (WARPS * HEAD_CHUNK) as usize);
        // Heads wider than a chunk take several iterations.
        k.range(0u32, head_dim, HEAD_CHUNK, |head_chunk| {
            let i = head_chunk + lane * 4;
            let vec4 = Vec4::new(i, head_dim, self.rows_aligned);
            let sums: Registers<'_> = registers(&k, 0.0);
            k.range(warp, old, WARPS * KEYS_IN_FLIGHT, |j| {
                let indices = KEY_STEPS.map(|step| j + step * WARPS);
                let rows = indices
                    .map(|j| vec4.load_as(self.dtype, self.values + self.offset(j.min(old - 1))));
                for (j, value) in indices.into_iter().zip(rows) {
                    k.when(j.lt(old), || add_weighted(&sums, weights.load(j), value));
                }
            });
            k.when(self.has_new() & i.lt(head_dim), || {
                add_weighted(&sums, weights.load(old), new_token.v.load_vec4(i));
            });
            warp_sums.store_vec4(warp * HEAD_CHUNK + lane * 4, values(&sums));
            k.barrier();
            let (thread, i) = (k.tid_x(), head_chunk + k.tid_x());
            k.when(thread.lt(HEAD_CHUNK) & i.lt(head_dim), || {
                let warps = (0..WARPS).map(|warp| warp_sums.load(thread + warp * HEAD_CHUNK));
                let total = warps.reduce(|sum, part| sum + part).expect("there is a warp");
                partial.store(i, total);
            });
            k.barrier();
        });
    }
}

/// `sums += weight · value`.
fn add_weighted<'k>(sums: &Registers<'k>, weight: Value<'k, f32>, value: F32x4<'k>) {
    for (sum, value) in sums.iter().zip(value) {
        sum.update(|sum| weight.fma(value, sum));
    }
}

/// Replaces the scores by `exp(score − max)` and returns the maximum to every thread. If all scores
/// are −∞, the exponentials are 0.
fn exponentials<'k>(
    k: &Kernel<'k>,
    scores: Shared<'k, f32>,
    count: Value<'k, u32>,
) -> Value<'k, f32> {
    let max = k.var(f32::NEG_INFINITY);
    k.range(k.lane(), count, 32, |j| max.update(|max| max.max(scores.load(j))));
    let max = k.warp_max(max.get());
    // All warps must have read the scores before they are replaced.
    k.barrier();
    let base = max.eq(f32::NEG_INFINITY).select(0.0, max);
    k.range(k.tid_x(), count, 32 * WARPS, |j| {
        scores.store(j, (scores.load(j) - base).exp());
    });
    k.barrier();
    max
}
