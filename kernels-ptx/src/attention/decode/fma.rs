//! The products of a split by fused multiply-adds. A warp takes eight consecutive positions at a
//! time, all its positions in a split of 64, and its lanes the vec4s of a head.

use retrograph_kernel_abi::attention::{
    DECODE_HEAD_CHUNK as HEAD_CHUNK, DECODE_HEADS_AT_ONCE as HEADS_AT_ONCE,
};
use retrograph_ptx::build::{Shared, Value};

use super::{BlockSplits, Partials, Split, WARPS};
use crate::primitives::reduce::warp_sum_of_eight;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::vec4::{F32x4, Vec4};

/// Consecutive positions of a warp, in flight together.
const WARP_POSITIONS: u32 = 8;
const STEPS: [u32; WARP_POSITIONS as usize] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Positions of a block in flight.
const BLOCK_POSITIONS: u32 = WARPS * WARP_POSITIONS;

/// Stores the dot products of each query and the keys of the old positions.
pub(super) fn store_scores(split: &Split<'_, '_>) {
    let Split { block, old, .. } = *split;
    let BlockSplits { k, lane, warp, new_token, heads, head_dim, .. } = *block;
    // The position whose sum a lane has, and whether the lane stores it.
    let (step, stores) = (lane >> 2, (lane & 3).eq(0));
    k.range(warp * WARP_POSITIONS, old, BLOCK_POSITIONS, |j| {
        // Heads wider than a chunk take several iterations.
        k.range(0u32, head_dim, HEAD_CHUNK, |head_chunk| {
            let i = head_chunk + lane * 4;
            let keys = load(split, split.keys, j, i);
            k.range(0u32, heads.count, 1, |head| {
                let q: Registers<'_> = registers(&k, 0.0);
                k.when(i.lt(head_dim), || set(&q, new_token.query(head).load_vec4(i)));
                let q = values(&q);
                let dots =
                    keys.map(|key| (1..4).fold(q[0] * key[0], |dot, i| q[i].fma(key[i], dot)));
                let dot = warp_sum_of_eight(&k, dots);
                k.when(stores & (j + step).lt(old), || {
                    let score = split.scores_of(head).at(j + step);
                    let sum = k.var(dot);
                    k.when(head_chunk.gt(0), || sum.update(|sum| score.load(0) + sum));
                    score.store(0, sum.get());
                });
            });
        });
    });
}

/// Writes the sum of the values, weighted by the exponentials, to the partial result of each head.
pub(super) fn add_values<'k>(split: &Split<'_, 'k>, partials: Partials<'k>) {
    let Split { block, old, .. } = *split;
    let BlockSplits { k, lane, warp, heads, head_dim, .. } = *block;
    k.range(0u32, head_dim, HEAD_CHUNK, |head_chunk| {
        let i = head_chunk + lane * 4;
        k.range(0u32, heads.count, HEADS_AT_ONCE, |first| {
            let sums = [0, 1, 2, 3].map(|step| (first + step, registers(&k, 0.0)));
            k.range(warp * WARP_POSITIONS, old, BLOCK_POSITIONS, |j| {
                let values = load(split, split.values, j, i);
                for (head, sums) in &sums {
                    k.when(head.lt(heads.count), || {
                        let weights = split.scores_of(*head).at(j);
                        add_weighted(split, sums, j, weights, &values);
                    });
                }
            });
            for (step, (head, sums)) in (0..).zip(&sums) {
                let index = (warp + step * WARPS) * HEAD_CHUNK + lane * 4;
                k.when(head.lt(heads.count), || split.sums.store_vec4(index, values(sums)));
            }
            k.barrier();
            k.range(k.tid_x(), HEADS_AT_ONCE * HEAD_CHUNK, 32 * WARPS, |index| {
                let (step, element) = (index / HEAD_CHUNK, index % HEAD_CHUNK);
                let (head, i) = (first + step, head_chunk + element);
                k.when(head.lt(heads.count) & i.lt(head_dim), || {
                    let sums = split.sums.at(step * (WARPS * HEAD_CHUNK) + element);
                    let sums = (0..WARPS).map(|warp| sums.load(warp * HEAD_CHUNK));
                    let total = sums.reduce(|sum, part| sum + part).expect("there is a warp");
                    partials.of(head).store(i, split.add_new_value(total, head, i));
                });
            });
            k.barrier();
        });
    });
}

/// The elements from `i` on of `rows` of the positions from `j` on. Positions past the old ones
/// repeat the last one.
fn load<'k>(
    split: &Split<'_, 'k>,
    rows: Value<'k, u64>,
    j: Value<'k, u32>,
    i: Value<'k, u32>,
) -> [F32x4<'k>; WARP_POSITIONS as usize] {
    let (vec4, last) = (Vec4::new(i, split.block.head_dim, split.rows_aligned), split.old - 1);
    STEPS.map(|step| vec4.load_as(split.block.dtype, rows + split.offset((j + step).min(last))))
}

/// `sums += weight · value` for the old positions from `j` on.
fn add_weighted<'k>(
    split: &Split<'_, 'k>,
    sums: &Registers<'k>,
    j: Value<'k, u32>,
    weights: Shared<'k, f32>,
    values: &[F32x4<'k>; WARP_POSITIONS as usize],
) {
    let weights = [0, 4].map(|step| weights.load_vec4(step)).concat();
    for ((step, weight), value) in (0..).zip(weights).zip(values) {
        split.block.k.when((j + step).lt(split.old), || {
            for (sum, value) in sums.iter().zip(*value) {
                sum.update(|sum| weight.fma(value, sum));
            }
        });
    }
}
