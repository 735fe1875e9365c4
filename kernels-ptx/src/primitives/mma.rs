//! Accumulator fragments of `mma` instructions.

use retrograph_ptx::build::{Kernel, Value, Var};

use super::registers::{Registers, registers};

/// The elements that a lane holds of a 16 × 8 accumulator of `mma.m16n8`: two neighbors in a row,
/// and the two elements 8 rows further down.
pub(crate) type AccFragment<'k> = Registers<'k>;

/// The lane's two rows of a fragment, relative to [`fragment_row`].
pub(crate) const LANE_ROWS: [u32; 2] = [0, 8];

/// The first of this lane's two rows of a fragment.
pub(crate) fn fragment_row<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.lane() >> 2
}

/// The first of this lane's two neighboring columns of a fragment.
pub(crate) fn fragment_column<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    (k.lane() & 3) * 2
}

/// Fragments of 16 rows and `columns` columns, set to 0.
pub(crate) fn acc_row<'k>(k: &Kernel<'k>, columns: u32) -> Vec<AccFragment<'k>> {
    (0..columns / 8).map(|_| registers(k, 0.0)).collect()
}

/// The registers of fragments, in the order of `wgmma`.
pub(crate) fn acc_registers<'k>(acc: &[AccFragment<'k>]) -> Vec<Var<'k, f32>> {
    acc.iter().flatten().copied().collect()
}

/// Adds to a fragment, by fused multiply-adds, the products of consecutive steps of K: `rows` are
/// the lane's two rows of a and `columns` its two columns of b.
pub(crate) fn fma_fragment<'k, const STEPS: usize>(
    fragment: &AccFragment<'k>,
    rows: &[[Value<'k, f32>; STEPS]],
    columns: &[[Value<'k, f32>; STEPS]],
) {
    for (index, sum) in fragment.iter().enumerate() {
        let (x, y) = (rows[index / 2], columns[index % 2]);
        sum.update(|sum| x.into_iter().zip(y).fold(sum, |sum, (x, y)| x.fma(y, sum)));
    }
}

/// Adds the fragments `addends` to `acc`, element by element.
pub(crate) fn add_fragments<'k>(acc: &[AccFragment<'k>], addends: &[AccFragment<'k>]) {
    for (sum, addend) in acc.iter().flatten().zip(addends.iter().flatten()) {
        sum.add_assign(addend.get());
    }
}
