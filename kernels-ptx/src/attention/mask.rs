//! The rows and columns that a lane holds of an accumulator, and the causal mask.

use retrograph_ptx::build::{Kernel, Value};

use crate::primitives::mma::{AccFragment, LANE_ROWS, fragment_column, fragment_row};

/// The first of the lane's two rows in the block; see [`LANE_ROWS`].
pub(super) fn lane_row<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.warp() * 16 + fragment_row(k)
}

/// Sets elements of `acc` whose key is later than the query to `value`. `first` is the position of
/// the first row and of the first column. Queries are rows if `rows_are_queries`, otherwise
/// columns.
pub(super) fn apply_causal_mask<'k>(
    k: &Kernel<'k>,
    first: [Value<'k, u32>; 2],
    rows_are_queries: bool,
    acc: &[AccFragment<'k>],
    value: f32,
) {
    let diagonal = first[0] + lane_row(k) - first[1] - fragment_column(k);
    let diagonal = LANE_ROWS.map(|row| (diagonal + row).cast::<i32>());
    for (j, fragment) in (0..).zip(acc) {
        for (index, element) in fragment.iter().enumerate() {
            let (diagonal, column) = (diagonal[index / 2], j * 8 + index as i32 % 2);
            let masked = if rows_are_queries { diagonal.lt(column) } else { diagonal.gt(column) };
            element.update(|element| masked.select(value, element));
        }
    }
}
