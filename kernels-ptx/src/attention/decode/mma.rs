//! The products of a split by tensor cores, for a cache in bf16.
//!
//! A warp computes a unit of 16 positions and 64 elements of a head. The eight warps together cover
//! 64 positions and 128 elements, or 128 positions of heads of up to 64 elements. Queries and
//! weights, which are f32, are sums of three bf16 numbers, whose products with keys and values are
//! exact in f32.
//!
//! **Scores.** Positions are the 16 rows of `mma.m16n8k16`, and heads the 8 columns. Any order of K
//! is valid if it is the same for both operands, so a lane loads 8 consecutive elements of two
//! keys. The dot products of the two units of a head are added later.
//!
//! **Values.** Heads are rows, elements are columns, and positions are K. Rows 0 to 7 have the
//! first part of the weights and rows 8 to 15 the second; another product has the third. A lane
//! loads 8 consecutive elements of four values, one element for each of 8 products.

use retrograph_kernel_abi::attention::DECODE_HEAD_CHUNK as HEAD_CHUNK;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Ptr, Value};

use super::{BlockSplits, Partials, Split, WARPS};
use crate::primitives::bf16::{pack, unpack};
use crate::primitives::mma::{LANE_ROWS, acc_row};
use crate::primitives::registers::{Registers, registers, set, values};

/// Positions of a unit.
const UNIT_POSITIONS: u32 = 16;
/// Elements of a unit.
const UNIT_ELEMENTS: u32 = 64;
/// Units of positions that are computed at a time, if heads have more than [`UNIT_ELEMENTS`].
const WIDE_UNITS: u32 = WARPS * UNIT_ELEMENTS / HEAD_CHUNK;

/// The unit of a warp.
struct Unit<'k> {
    /// Its index among the units of positions.
    index: Value<'k, u32>,
    /// 1 if it has the second half of the elements, else 0.
    half: Value<'k, u32>,
    /// Positions that are computed at a time.
    positions: Value<'k, u32>,
}

impl<'k> Unit<'k> {
    fn of_warp(block: &BlockSplits<'_, 'k>) -> Self {
        let is_narrow = block.head_dim.le(UNIT_ELEMENTS);
        let count = is_narrow.select(WARPS, WIDE_UNITS);
        // Computed twice, which needs a register less.
        let index = || block.warp & (count - 1);
        let half = (block.warp - index()) >> WIDE_UNITS.ilog2();
        let positions = count * UNIT_POSITIONS;
        Self { index: index(), half, positions }
    }
}

/// Stores the dot products of each query and the keys of the old positions.
pub(super) fn store_scores(split: &Split<'_, '_>) {
    let Split { block, old, .. } = *split;
    let BlockSplits { k, target, lane, heads, head_dim, split_len, scores, .. } = *block;
    let Unit { index: unit, half, positions } = Unit::of_warp(block);
    let (group, member) = (lane >> 2, lane & 3);
    let other = split.other_scores.expect("warps compute two dot products");
    k.range(unit * UNIT_POSITIONS, old, positions, |j| {
        let dots_of_parts = [(); 3].map(|()| acc_row(&k, 8)[0]);
        k.range(half * UNIT_ELEMENTS, head_dim, HEAD_CHUNK, |first| {
            let elements = [0, 32].map(|chunk| first + chunk + member * 8);
            let at = elements.map(|i| LANE_ROWS.map(|row| [j + group + row, i]));
            let keys = load_eights(split, split.keys, [at[0][0], at[0][1], at[1][0], at[1][1]]);
            for (i, rows) in elements.into_iter().zip(keys.chunks_exact(2)) {
                let query = bf16_parts(target, load_query(split, group, i));
                for (part, dots) in query.into_iter().zip(dots_of_parts) {
                    for pair in [0, 2] {
                        let [upper, lower] = [rows[0], rows[1]];
                        let a = [upper[pair], lower[pair], upper[pair + 1], lower[pair + 1]];
                        k.mma_m16n8k16_bf16(a, [part[pair], part[pair + 1]], dots);
                    }
                }
            }
        });
        for index in 0..4u32 {
            // The smallest part first.
            let [high, middle, low] = dots_of_parts.map(|dots| dots[index as usize].get());
            let dot = low + middle + high;
            let position = j + group + (index & 2) * 4;
            let head = member * 2 + (index & 1);
            k.when(position.lt(old) & head.lt(heads.count), || {
                let (at, dot) = (head * split_len + position, k.var(dot));
                let is_nan = dot.get().ne(dot.get());
                k.when(is_nan, || dot.set(exact_dot(split, half, position, head)));
                let dot = dot.get();
                k.when_else(half.eq(0), || scores.store(at, dot), || other.store(at, dot));
                k.when(head_dim.le(UNIT_ELEMENTS), || other.store(at, 0.0));
            });
        }
    });
}

/// The dot product of a query and a key over the elements of a half, one after the other. Parts of
/// a query that are 0 or differ in sign make NaN of infinite keys and products.
fn exact_dot<'k>(
    split: &Split<'_, 'k>,
    half: Value<'k, u32>,
    position: Value<'k, u32>,
    head: Value<'k, u32>,
) -> Value<'k, f32> {
    let BlockSplits { k, head_dim, .. } = *split.block;
    let (key, query) = (split.keys + split.offset(position), split.block.new_token.query(head));
    let (key, dot) = (Ptr::<u32>::from_address(key), k.var(0.0f32));
    k.range(half * UNIT_ELEMENTS, head_dim, HEAD_CHUNK, |first| {
        k.range(first, head_dim.min(first + UNIT_ELEMENTS), 1, |i| {
            let key = Value::<f32>::from_bits(key.load_u16(i) << 16);
            dot.update(|dot| query.load(i).fma(key, dot));
        });
    });
    dot.get()
}

/// Writes the sum of the values, weighted by the exponentials, to the partial result of each head.
pub(super) fn add_values<'k>(split: &Split<'_, 'k>, partials: Partials<'k>) {
    let Split { block, old, sums: sums_of_units, .. } = *split;
    let BlockSplits { k, target, lane, heads, head_dim, .. } = *block;
    let Unit { index: unit, half, positions } = Unit::of_warp(block);
    let (group, member) = (lane >> 2, lane & 3);
    k.range(0u32, head_dim, HEAD_CHUNK, |head_chunk| {
        let i = head_chunk + half * UNIT_ELEMENTS + group * 8;
        let sums = acc_row(&k, UNIT_ELEMENTS);
        k.range(unit * UNIT_POSITIONS, old, positions, |j| {
            let first = j + member * 4;
            let at = [0, 1, 2, 3].map(|row| [first + row, i]);
            let rows = load_eights(split, split.values, at);
            let weights = split.scores_of(group.min(heads.count - 1)).at(first).load_vec4(0);
            let mut position = first;
            let weights = weights.map(|weight| {
                let weight = position.lt(old).select(weight, 0.0);
                position = position + 1;
                weight
            });
            let [high, middle, low] = bf16_parts(target, weights);
            let zero = k.constant(0u32);
            for (element, sums) in sums.iter().enumerate() {
                // The element of two positions each.
                let selector = if element % 2 == 0 { 0x5410u32 } else { 0x7632 };
                let word = element / 2;
                let b = [0, 2].map(|row| rows[row][word].prmt(rows[row + 1][word], selector));
                k.mma_m16n8k16_bf16([high[0], middle[0], high[1], middle[1]], b, *sums);
                k.mma_m16n8k16_bf16([low[0], zero, low[1], zero], b, *sums);
            }
        });
        // Computed again, since the loop needs all registers.
        let is_narrow = head_dim.le(UNIT_ELEMENTS);
        let chunk_log2 = is_narrow.select(UNIT_ELEMENTS.ilog2(), HEAD_CHUNK.ilog2());
        let Unit { index: unit, half, .. } = Unit::of_warp(block);
        let (group, member) = (k.lane() >> 2, k.lane() & 3);
        k.when(group.lt(heads.count), || {
            let row = (unit * heads.count + group) << chunk_log2;
            let to = sums_of_units.at(row + half * UNIT_ELEMENTS + member * 16);
            for column in [0, 1] {
                let elements: Vec<_> =
                    sums.iter().map(|sum| sum[column].get() + sum[column + 2].get()).collect();
                for (at, vec4) in (0..).step_by(4).zip(elements.chunks_exact(4)) {
                    let vec4 = [vec4[0], vec4[1], vec4[2], vec4[3]];
                    to.store_vec4(column as u32 * 8 + at, vec4);
                }
            }
        });
        k.barrier();
        let (chunk, len) = (k.constant(1) << chunk_log2, heads.count << chunk_log2);
        k.range(k.tid_x(), len, 32 * WARPS, |index| {
            let (head, i) = (index >> chunk_log2, head_chunk + (index & (chunk - 1)));
            k.when(i.lt(head_dim), || {
                let (total, units) = (k.var(0.0f32), is_narrow.select(WARPS, WIDE_UNITS));
                k.range(index, len * units, len, |at| {
                    total.add_assign(sums_of_units.load(at));
                });
                partials.of(head).store(i, split.add_new_value(total.get(), head, i));
            });
        });
        k.barrier();
    });
}

/// Eight elements of keys or values each, at the given positions and from the given elements on, as
/// words; 0 past the old positions and the head.
fn load_eights<'k, const N: usize>(
    split: &Split<'_, 'k>,
    rows: Value<'k, u64>,
    at: [[Value<'k, u32>; 2]; N],
) -> [[Value<'k, u32>; 4]; N] {
    let BlockSplits { k, head_dim, .. } = *split.block;
    let vectors: [Registers<'k, 4, u32>; N] = [(); N].map(|()| registers(&k, 0));
    let each = |load: &dyn Fn(usize, Ptr<'k, u32>, Value<'k, u32>)| {
        for (index, [position, i]) in at.iter().enumerate() {
            let row = Ptr::from_address(rows + split.offset(*position));
            k.when(position.lt(split.old) & i.lt(head_dim), || load(index, row, *i));
        }
    };
    let vectorized = split.rows_aligned & (head_dim & 7).eq(0);
    k.when_else(
        vectorized,
        || each(&|index, row, i| set(&vectors[index], row.load_vec4(i >> 1))),
        || {
            each(&|index, row, i| {
                for element in 0..8u32 {
                    k.when((i + element).lt(head_dim), || {
                        let bits = row.load_u16(i + element);
                        let bits = if element % 2 == 0 { bits } else { bits << 16 };
                        vectors[index][element as usize / 2].update(|word| word | bits);
                    });
                }
            });
        },
    );
    vectors.map(|words| values(&words))
}

/// Eight elements from `i` on of the query of head `head` of the block, or of the last head; 0 past
/// the end.
fn load_query<'k>(
    split: &Split<'_, 'k>,
    head: Value<'k, u32>,
    i: Value<'k, u32>,
) -> [Value<'k, f32>; 8] {
    let BlockSplits { k, new_token, heads, head_dim, .. } = *split.block;
    let query = new_token.query(head.min(heads.count - 1));
    let elements: Registers<'k, 8> = registers(&k, 0.0);
    for at in [0, 4] {
        k.when((i + at).lt(head_dim), || {
            set(&elements[at as usize..], query.load_vec4(i + at));
        });
    }
    values(&elements)
}

/// Three pairs of bf16 numbers for each pair of values. The sum of the three is the value, up to
/// 2⁻²⁴ of it.
fn bf16_parts<'k, const N: usize>(
    target: SmTarget,
    mut values: [Value<'k, f32>; N],
) -> [Vec<Value<'k, u32>>; 3] {
    [(); 3].map(|()| {
        let words: Vec<_> =
            values.chunks_exact(2).map(|pair| pack(target, [pair[0], pair[1]])).collect();
        let rounded = words.iter().flat_map(|word| unpack(*word));
        values.iter_mut().zip(rounded).for_each(|(value, rounded)| *value = *value - rounded);
        words
    })
}
