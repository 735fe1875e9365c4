//! Partial sums of the squares of a result, so that its norm needs no other read of it.
//!
//! There is one partial sum per block of 64 rows and 64 columns. A tile writes those whose last
//! column it contains: the first one is the sum of the tile, or of the rows of a warpgroup, and the
//! others are 0.
//!
//! Deterministic: a thread adds in the order of its accumulators, lanes by a butterfly, and warps
//! in ascending order.

use retrograph_kernel_abi::gemm::{GemmSquaresParameters, SQUARES_BLOCK};
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::accumulator::AccFragment;
use super::params::{GemmParams, tiles};
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{registers, values};

/// Sums of squares of at least this size have lost nothing to underflow.
const SMALLEST_SUM: f32 = 1e-24;

/// The warps of a tile.
#[derive(Clone, Copy)]
pub(super) struct TileWarps<'k> {
    pub(super) count: u32,
    /// Indices of this warp and of this thread within them.
    pub(super) warp: Value<'k, u32>,
    pub(super) thread: Value<'k, u32>,
    /// An element of shared memory for each warp.
    pub(super) sums: Shared<'k, f64>,
}

/// The partial sums of a result.
#[derive(Clone, Copy)]
pub(super) struct SquaresParams<'k> {
    /// Null if the launch has no partial sums.
    partials: Ptr<'k, f64>,
}

impl<'k> SquaresParams<'k> {
    pub(super) fn declare(k: &Kernel<'k>) -> Self {
        let GemmSquaresParameters { squares } =
            GemmSquaresParameters::declare(&mut Declarations(*k));
        Self { partials: squares }
    }

    /// Writes the partial sums, if the launch has any, of a tile of `rows` × `columns` elements of
    /// `product` at `origin`. All warps of the tile call it, each with its accumulators in `acc`.
    /// `synchronize` is their barrier.
    pub(super) fn write(
        &self,
        product: &GemmParams<'k>,
        origin: [Value<'k, u32>; 2],
        [rows, columns]: [u32; 2],
        TileWarps { count: warps, warp, thread, sums }: TileWarps<'k>,
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
            // The next tile overwrites `sums`.
            synchronize();
        });
    }
}

/// Returns the sum of the squares of the accumulators of a warp in all lanes.
fn warp_squares<'k>(k: &Kernel<'k>, acc: &[AccFragment<'k>]) -> Value<'k, f64> {
    let sum = sum_of_squares(k, acc, |value| value);
    let total = k.var(sum.cast::<f64>());
    // NaN compares as out of range.
    let in_range = sum.ge(SMALLEST_SUM) & sum.le(f32::MAX);
    k.when(!in_range, || {
        let largest = acc
            .as_flattened()
            .iter()
            .fold(k.constant(0.0), |largest, value| largest.max(value.get().abs()));
        let largest = k.warp_max(largest);
        // Scales by the power of two below the largest, clamped so that its reciprocal is normal.
        let exponent = (largest.bits() >> 23).max(1).min(253);
        let reciprocal =
            Value::<f32>::from_bits((exponent.kernel().constant(254) - exponent) << 23);
        let scale = Value::<f32>::from_bits(exponent << 23).cast::<f64>();
        let sum = sum_of_squares(k, acc, |value| value * reciprocal);
        total.set(sum.cast::<f64>() * scale * scale);
    });
    total.get()
}

/// Returns the sum of the squares of the accumulators of a warp, mapped by `map`, in all lanes.
fn sum_of_squares<'k>(
    k: &Kernel<'k>,
    acc: &[AccFragment<'k>],
    map: impl Fn(Value<'k, f32>) -> Value<'k, f32>,
) -> Value<'k, f32> {
    let sums = registers(k, 0.0);
    for fragment in acc {
        for (sum, value) in sums.iter().zip(fragment) {
            let value = map(value.get());
            sum.update(|sum| value.fma(value, sum));
        }
    }
    let [a, b, c, d] = values(&sums);
    k.warp_sum((a + b) + (c + d))
}
