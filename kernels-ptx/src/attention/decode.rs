//! Decode attention: one new token of each sequence attends to its KV cache (split-KV, as in
//! FlashDecoding), fused with the epilogue of its projections, q/k norm, RoPE and the append to the
//! cache.
//!
//! ```text
//! q, k, v = projections (+ lora_scale · B · t)        with LoRA: t = A·x
//! q, k    = rope(norm(q)), rope(norm(k))             per head; norm is optional
//! s_j     = scale · q_h · key_j                      keys and values of head h ÷ group
//! s_j     = softcap · tanh(s_j ÷ softcap)            if scores have a cap
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
//! **Grid.** Splits: a block of eight warps handles splits of one sequence for up to eight heads of
//! a group, which share keys and values: every `nctaid.y`-th split, one after the other. Blocks
//! without a split inside length and window return at once. A block first prefetches its first
//! split into L2, then computes the queries of the new token. The block with the last split also
//! computes its key and value, and the first block of each group writes them. The products are
//! computed by tensor cores for caches in bf16 ([`mma`]), and otherwise by fused multiply-adds
//! ([`fma`]). Combine: one block of 128 threads per head and sequence, one thread per element.
//!
//! **Determinism.** A warp adds its positions in ascending order. Warps are added in order, the new
//! position last. Combine adds the values of the splits in order, and their sums of exponentials
//! per lane and then by a tree. The assignment of positions to splits depends only on `split_len`,
//! and no sum on the number of blocks.

mod combine;
mod fma;
mod mma;
mod new_token;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{
    DECODE_ATTENTION, DECODE_ATTENTION_BF16, DECODE_THREADS, DecodeAttentionParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Shared, Value, Var};

use crate::primitives::parameters::Declarations;
use crate::primitives::pdl;
use crate::primitives::softcap::softcap as capped;
use new_token::NewToken;

/// Warps of a block.
const WARPS: u32 = DECODE_THREADS / 32;
/// Bytes of a cache line.
const CACHE_LINE: u32 = 128;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let kernels = [(DECODE_ATTENTION, DType::F32), (DECODE_ATTENTION_BF16, DType::Bf16)];
    let entries = kernels.into_iter().flat_map(|(kernel, dtype)| {
        let entries = kernel.entries.iter().zip([false, true]);
        entries.map(move |(name, has_softcap)| splits(name, target, dtype, has_softcap))
    });
    let module = entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry);
    module.entry(combine::entry(target)).build()
}

/// The heads of a block, all of one group.
#[derive(Clone, Copy)]
struct Heads<'k> {
    first: Value<'k, u32>,
    count: Value<'k, u32>,
    kv_head: Value<'k, u32>,
    /// Whether they are the first of their group.
    first_of_group: Pred<'k>,
}

impl<'k> Heads<'k> {
    /// The heads of this block, if each of `blocks` blocks has `block_heads` heads of a `group`,
    /// the last one fewer.
    fn of_block(
        k: &Kernel<'k>,
        group: Value<'k, u32>,
        [block_heads, blocks]: [Value<'k, u32>; 2],
    ) -> Self {
        // Large grids have one block for each group, and a division takes long.
        let kv_head = k.var(k.ctaid_x());
        k.when(blocks.gt(1), || kv_head.set(k.ctaid_x() / blocks));
        let kv_head = kv_head.get();
        let first = (k.ctaid_x() - kv_head * blocks) * block_heads;
        Self {
            first: kv_head * group + first,
            count: block_heads.min(group - first),
            kv_head,
            first_of_group: first.eq(0),
        }
    }
}

/// The entry for caches with elements of type `dtype`, which computes the splits. Scores have a cap
/// if `has_softcap` is set.
fn splits(name: &str, target: SmTarget, dtype: DType, has_softcap: bool) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        let by_mma = dtype == DType::Bf16 && target.features().bf16_mma;
        // Leaves resources for a successor that prefetches its weights. With three blocks, a thread
        // has 80 registers, too few for a cap.
        let spills = target.features().spills_at_80_registers;
        k.min_blocks(if spills || has_softcap { 2 } else { 3 });
        let parameters = DecodeAttentionParameters::declare(&mut Declarations(*k));
        let DecodeAttentionParameters { kv_heads, group, block_heads, group_blocks, .. } =
            parameters;
        let DecodeAttentionParameters { partials, stats, position, capacity, .. } = parameters;
        let DecodeAttentionParameters { head_dim, splits, split_len, window, .. } = parameters;
        let DecodeAttentionParameters { scale, softcap, .. } = parameters;
        let softcap = has_softcap.then_some(softcap);
        let sequence = k.ctaid_z();
        let heads = Heads::of_block(k, group, [block_heads, group_blocks]);
        let new_token = NewToken::new(k, target, dtype, &parameters, sequence);
        pdl::launch_dependents(k, target);
        pdl::wait(k, target);

        // An empty cache has no splits; the search for the first one would not end.
        k.return_if(capacity.eq(0));
        // Computes independent values while the position is in flight.
        let position = position.load(sequence);
        new_token.project_queries(heads);
        let seen = position + 1;
        let (length, window_start) = (seen.min(capacity), seen - seen.min(window));
        // The splits of this block, from the first one that is not before the window.
        let (split, stride) = (k.var(k.ctaid_y()), k.nctaid_y());
        let before = window_start.min(length);
        let is_before = || ((split.get() + 1) * split_len).le(before);
        k.while_loop(is_before, || split.add_assign(stride));
        k.return_if((split.get() * split_len).max(window_start).ge(length));

        let (lane, warp) = (k.lane(), k.warp());
        let width = kv_heads * head_dim;
        let shift = dtype.bytes().ilog2();
        let first_row = new_token.first_row + ((heads.kv_head * head_dim).cast::<u64>() << shift);
        let (scores, scores_len) = (new_token.shared_end(), block_heads * split_len);
        let block = BlockSplits {
            k: *k,
            target,
            dtype,
            by_mma,
            lane,
            warp,
            new_token: &new_token,
            heads,
            head_dim,
            width,
            split_len,
            current: split,
            window_start,
            length,
            seen,
            first_row,
            scores,
            scores_len,
        };
        block.split().prefetch();
        let is_new = has_last_split(k, length, split.get(), [splits, split_len]);
        let offset = first_row + (position.mul_wide(width) << shift);
        let rows = new_token.caches.map(|cache| cache + offset);
        new_token.compute(heads, position, position.lt(capacity) & is_new, rows);

        // The index of the partial results of the first head of this block.
        let first_index = (sequence * (kv_heads * group) + heads.first) * splits;
        k.while_loop(
            || (split.get() * split_len).lt(length),
            || {
                let (part, index) = (block.split(), split.get());
                split.add_assign(stride);
                k.when((split.get() * split_len).lt(length), || block.split().prefetch());
                part.store_scores();
                let index = first_index + index;
                k.when(warp.lt(heads.count), || {
                    let [max, sum] = part.exponentials(warp, scale, softcap);
                    k.when(lane.eq(0), || {
                        stats.store_vec2((index + warp * splits) * 2, [max, sum])
                    });
                });
                k.barrier();
                let partials = Partials {
                    first: partials.at(index.mul_wide(head_dim)),
                    stride: splits * head_dim,
                };
                match by_mma {
                    true => mma::add_values(&part, partials),
                    false => fma::add_values(&part, partials),
                }
            },
        );
    })
}

/// The splits that a block computes one after the other.
struct BlockSplits<'a, 'k> {
    k: Kernel<'k>,
    target: SmTarget,
    /// Element type of the cache.
    dtype: DType,
    /// Whether tensor cores compute the products.
    by_mma: bool,
    lane: Value<'k, u32>,
    warp: Value<'k, u32>,
    new_token: &'a NewToken<'k>,
    heads: Heads<'k>,
    head_dim: Value<'k, u32>,
    /// Elements from one position to the next.
    width: Value<'k, u32>,
    split_len: Value<'k, u32>,
    /// The index of the current split.
    current: Var<'k, u32>,
    /// The first position in the window, the positions in use, and those up to the new token.
    window_start: Value<'k, u32>,
    length: Value<'k, u32>,
    seen: Value<'k, u32>,
    /// Byte offset of the head at position 0 of the sequence.
    first_row: Value<'k, u64>,
    /// `[heads, split_len]` in shared memory: dot products of queries and keys of a split, then
    /// their exponentials.
    scores: Shared<'k, f32>,
    scores_len: Value<'k, u32>,
}

impl<'k> BlockSplits<'_, 'k> {
    /// The current split.
    fn split(&self) -> Split<'_, 'k> {
        let Self { dtype, by_mma, width, split_len, scores, scores_len, .. } = *self;
        let start = self.current.get() * split_len;
        let (first, end) = (start.max(self.window_start), self.length.min(start + split_len));
        // The new position is the last one of the last split, unless the cache is full.
        let (is_new, count) = (end.eq(self.seen), end - first);
        let offset = self.first_row + (first.mul_wide(width) << dtype.bytes().ilog2());
        let [keys, values] = self.new_token.caches.map(|cache| cache + offset);
        let vector = if by_mma { 8 } else { 4 };
        let rows_aligned = ((keys | values) & u64::from(vector * dtype.bytes() - 1)).eq(0)
            & (width & (vector - 1)).eq(0);
        Split {
            block: self,
            keys,
            values,
            rows_aligned,
            is_new,
            count,
            old: is_new.select(count - 1, count),
            other_scores: by_mma.then(|| scores.at(scores_len)),
            sums: scores.at(scores_len * 2),
        }
    }
}

/// Whether a block whose first split is `first` has the last split of `length` positions.
fn has_last_split<'k>(
    k: &Kernel<'k>,
    length: Value<'k, u32>,
    first: Value<'k, u32>,
    [splits, split_len]: [Value<'k, u32>; 2],
) -> Pred<'k> {
    let (stride, distance) = (k.nctaid_y(), k.var(length - first * split_len - 1));
    // Blocks with one split need no division.
    k.when(stride.lt(splits), || distance.update(|distance| distance % (stride * split_len)));
    distance.get().lt(split_len)
}

/// The partial results of the heads of a block.
#[derive(Clone, Copy)]
struct Partials<'k> {
    first: Ptr<'k, f32>,
    /// Elements from one head to the next.
    stride: Value<'k, u32>,
}

impl<'k> Partials<'k> {
    /// The partial result of head `head` of the block.
    fn of(self, head: Value<'k, u32>) -> Ptr<'k, f32> {
        self.first.at(head.mul_wide(self.stride))
    }
}

/// The positions of a split in the cache of one key and value head, and the query heads of the
/// block.
struct Split<'a, 'k> {
    block: &'a BlockSplits<'a, 'k>,
    /// Addresses of the first position.
    keys: Value<'k, u64>,
    values: Value<'k, u64>,
    /// Whether all rows start at a multiple of the largest vector.
    rows_aligned: Pred<'k>,
    /// Whether the split has the new token, the number of its positions, and of its other
    /// positions.
    is_new: Pred<'k>,
    count: Value<'k, u32>,
    old: Value<'k, u32>,
    /// With tensor cores, two warps compute a dot product: `scores` has the part of the first warp
    /// and this the part of the second.
    other_scores: Option<Shared<'k, f32>>,
    /// Sums of the weighted values over the positions of a warp.
    sums: Shared<'k, f32>,
}

impl<'k> Split<'_, 'k> {
    /// Byte offset of position `j`.
    fn offset(&self, j: Value<'k, u32>) -> Value<'k, u64> {
        j.mul_wide(self.block.width) << self.block.dtype.bytes().ilog2()
    }

    /// The scores of head `head` of the block.
    fn scores_of(&self, head: Value<'k, u32>) -> Shared<'k, f32> {
        self.block.scores.at(head * self.block.split_len)
    }

    /// Prefetches the old positions into L2.
    fn prefetch(&self) {
        let BlockSplits { k, lane, warp, .. } = *self.block;
        let bytes_of_head = self.block.head_dim << self.block.dtype.bytes().ilog2();
        k.range(warp * 8 + (lane >> 2), self.old, 8 * WARPS, |j| {
            k.range((lane & 3) * CACHE_LINE, bytes_of_head, 4 * CACHE_LINE, |byte| {
                let byte = self.offset(j) + byte.cast::<u64>();
                for row in [self.keys, self.values] {
                    Ptr::<u32>::from_address(row + byte).prefetch_l2();
                }
            });
        });
    }

    /// Stores the dot products of queries and keys, and waits for all warps.
    fn store_scores(&self) {
        match self.block.by_mma {
            true => mma::store_scores(self),
            false => fma::store_scores(self),
        }
        self.store_new_scores();
        self.block.k.barrier();
    }

    /// Stores the dot product of each query and the key of the new token.
    fn store_new_scores(&self) {
        let BlockSplits { k, lane, warp, split_len, .. } = *self.block;
        k.when(self.is_new & warp.lt(self.block.heads.count), || {
            let dot = k.warp_sum(self.block.new_token.score(warp));
            k.when(lane.eq(0), || {
                let at = warp * split_len + self.old;
                self.block.scores.store(at, dot);
                if let Some(other) = self.other_scores {
                    other.store(at, 0.0);
                }
            });
        });
    }

    /// Replaces the dot products of a head by `exp(score − max)` and returns maximum and sum, where
    /// the score is `scale · dot`, capped if there is a cap. A warp executes it. If all scores are
    /// −∞, the exponentials are 0.
    fn exponentials(
        &self,
        head: Value<'k, u32>,
        scale: Value<'k, f32>,
        softcap: Option<Value<'k, f32>>,
    ) -> [Value<'k, f32>; 2] {
        let (k, count) = (self.block.k, self.count);
        let first = head * self.block.split_len;
        let scores = self.block.scores.at(first);
        let score = |j: Value<'k, u32>| {
            let other = self.other_scores.map(|other| other.load(first + j));
            other.map_or(scores.load(j), |other| scores.load(j) + other) * scale
        };
        let (max, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
        k.range(k.lane(), count, 32, |j| {
            let score = score(j);
            let score = softcap.map_or(score, |cap| {
                let capped = capped(score, cap);
                scores.store(j, capped / scale);
                if let Some(other) = self.other_scores {
                    other.store(first + j, 0.0);
                }
                capped
            });
            max.update(|max| max.max(score));
        });
        let max = k.warp_max(max.get());
        let base = max.eq(f32::NEG_INFINITY).select(0.0, max);
        k.range(k.lane(), count, 32, |j| {
            let exponential = (score(j) - base).exp();
            scores.store(j, exponential);
            sum.add_assign(exponential);
        });
        [max, k.warp_sum(sum.get())]
    }

    /// `sum` plus the weighted value of the new token, if the split has it: element `i` of head
    /// `head` of the block.
    fn add_new_value(
        &self,
        sum: Value<'k, f32>,
        head: Value<'k, u32>,
        i: Value<'k, u32>,
    ) -> Value<'k, f32> {
        let sum = self.block.k.var(sum);
        self.block.k.when(self.is_new, || {
            let weight = self.scores_of(head).load(self.old);
            sum.update(|sum| weight.fma(self.block.new_token.v.load(i), sum));
        });
        sum.get()
    }
}
