//! Partial sums of the squares of a result, from which its norm follows without another read.
//!
//! There is one partial sum for every 64 rows and 64 columns. A tile has those whose last column it
//! contains: the first one becomes the sum of the tile, or of the rows of a warpgroup, and the
//! others 0.
//!
//! Deterministic: a thread adds in the order of its accumulators, lanes by a butterfly, and warps
//! in ascending order.

use retrograph_kernel_abi::gemm::{GemmSquaresParameters, SQUARES_BLOCK};
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::accumulator::AccFragment;
use super::params::{GemmParams, tiles};
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{registers, values};

/// Sums of squares from here on have lost nothing to underflow.
const SMALLEST_SUM: f32 = 1e-24;

/// The partial sums of a result.
#[derive(Clone, Copy)]
pub(super) struct SquaresParams<'k> {
    /// Null if they are not asked for.
    partials: Ptr<'k, f64>,
}

impl<'k> SquaresParams<'k> {
    pub(super) fn declare(k: &Kernel<'k>) -> Self {
        let GemmSquaresParameters { squares } =
            GemmSquaresParameters::declare(&mut Declarations(*k));
        Self { partials: squares }
    }

    /// Writes the partial sums of a tile of `rows` × `columns` elements of `product` at `origin`,
    /// if they are asked for. `warps` warps call this together, each with its accumulators in
    /// `acc`. `warp` and `thread` are indices within these warps, and `synchronize` is their
    /// barrier.
    pub(super) fn write(
        &self,
        (product, origin, [rows, columns]): (&GemmParams<'k>, [Value<'k, u32>; 2], [u32; 2]),
        (sums, [warp, thread], warps): (Shared<'k, f64>, [Value<'k, u32>; 2], u32),
        acc: &[AccFragment<'k>],
        synchronize: impl Fn(),
    ) {
        let k = &warp.kernel();
        k.when(!self.partials.is_null(), || {
            let sum = warp_squares(k, acc);
            k.when(k.lane().eq(0), || sums.store(warp, sum));
            synchronize();
            let across = tiles(product.n, SQUARES_BLOCK);
            let [row, column] = origin;
            let (first, end) = (column / SQUARES_BLOCK, (column + columns) / SQUARES_BLOCK);
            let is_last = (column + columns).ge(product.n);
            let count = is_last.select(across, end) - first;
            k.when(thread.lt(count), || {
                let total = k.var(0.0_f64);
                k.when(thread.eq(0), || {
                    (0..warps).for_each(|warp| total.add_assign(sums.load(warp)));
                });
                for band in (0..rows).step_by(SQUARES_BLOCK as usize) {
                    let inside = (row + band).lt(product.m);
                    let at = ((row + band) / SQUARES_BLOCK).mad_lo(across, first) + thread;
                    k.when(inside, || self.partials.store(at, total));
                    total.set(0.0);
                }
            });
            // The sums of the next tile replace these.
            synchronize();
        });
    }
}

/// The sum of the squares of the accumulators of a warp, in all lanes.
fn warp_squares<'k>(k: &Kernel<'k>, acc: &[AccFragment<'k>]) -> Value<'k, f64> {
    let sum = sum_of_squares(k, acc, |value| value);
    let total = k.var(sum.cast::<f64>());
    // NaN is not in the range.
    let in_range = sum.ge(SMALLEST_SUM) & sum.le(f32::MAX);
    k.when(!in_range, || {
        let largest = acc
            .as_flattened()
            .iter()
            .fold(k.constant(0.0), |largest, value| largest.max(value.get().abs()));
        let largest = k.warp_max(largest);
        // The power of two below the largest one, as far as its reciprocal is a normal number.
        let exponent = (largest.bits() >> 23).max(1).min(253);
        let reciprocal =
            Value::<f32>::from_bits((exponent.kernel().constant(254) - exponent) << 23);
        let scale = Value::<f32>::from_bits(exponent << 23).cast::<f64>();
        let sum = sum_of_squares(k, acc, |value| value * reciprocal);
        total.set(sum.cast::<f64>() * scale * scale);
    });
    total.get()
}

/// The sum of the squares of `of` the accumulators of a warp, in all lanes.
fn sum_of_squares<'k>(
    k: &Kernel<'k>,
    acc: &[AccFragment<'k>],
    of: impl Fn(Value<'k, f32>) -> Value<'k, f32>,
) -> Value<'k, f32> {
    let sums = registers(k, 0.0);
    for fragment in acc {
        for (sum, value) in sums.iter().zip(fragment) {
            let value = of(value.get());
            sum.update(|sum| value.fma(value, sum));
        }
    }
    let [a, b, c, d] = values(&sums);
    k.warp_sum((a + b) + (c + d))
}
