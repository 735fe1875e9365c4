//! The inverse of RoPE at the end of the backward pass: turns the gradients of rotated queries and
//! keys into the gradients of those before the rotation, see [`rope`](crate::rope).
//!
//! ```text
//! out[i]        = x[i] · cos[p][i] + x[i + half] · sin[p][i]        i < half, p the position
//! out[i + half] = x[i + half] · cos[p][i] − x[i] · sin[p][i]
//! ```

use retrograph_kernel_abi::attention::FlashBackwardParameters;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::mask::lane_row;
use crate::primitives::mma::{AccFragment, fragment_column};
use crate::primitives::parameters::Declarations;

/// The rotation of the rows of a sequence.
#[derive(Clone, Copy)]
pub(super) struct InverseRope<'k> {
    /// Cosines and sines, or null.
    tables: [Ptr<'k, f32>; 2],
    /// Positions of the tokens of the sequence, or null.
    token_positions: Ptr<'k, u32>,
    /// The last row of the tables.
    last: Value<'k, u32>,
    /// Half the head dimension.
    half: Value<'k, u32>,
}

impl<'k> InverseRope<'k> {
    /// The rotation of `sequence`.
    pub(super) fn new(
        parameters: &FlashBackwardParameters<Declarations<'k>>,
        sequence: Value<'k, u32>,
    ) -> Self {
        let FlashBackwardParameters { cos, sin, token_positions, positions, .. } = *parameters;
        let FlashBackwardParameters { seq, head_dim, .. } = *parameters;
        let bytes = (sequence * seq).cast::<u64>() << 2;
        let first = token_positions.address();
        let first = first.eq(0).select(first, first + bytes);
        let token_positions = Ptr::from_address(first);
        Self { tables: [cos, sin], token_positions, last: positions - 1, half: head_dim >> 1 }
    }

    /// Whether rows are rotated.
    fn applies(&self) -> Pred<'k> {
        !self.tables[0].is_null()
    }

    /// The angles of `row`.
    fn angles(&self, k: &Kernel<'k>, row: Value<'k, u32>) -> [Ptr<'k, f32>; 2] {
        let position = k.var(row);
        k.when(!self.token_positions.is_null(), || position.set(self.token_positions.load(row)));
        let first = position.get().min(self.last).mul_wide(self.half);
        self.tables.map(|table| table.at(first))
    }

    /// Rotates accumulators with the columns of `mma` or `wgmma`: the rows of the block from
    /// `start` on, below `rows`. The head has as many elements as the accumulators.
    pub(super) fn rotate_accumulators(
        &self,
        (start, rows): (Value<'k, u32>, Value<'k, u32>),
        acc: &[AccFragment<'k>],
    ) {
        let k = &start.kernel();
        let (first, second) = acc.split_at(acc.len() / 2);
        for half in [0, 2] {
            let row = start + lane_row(k) + half as u32 * 4;
            k.when(self.applies() & row.lt(rows), || {
                let angles = self.angles(k, row).map(|table| table.at(fragment_column(k)));
                for (j, (a, b)) in (0u32..).zip(first.iter().zip(second)) {
                    let [cos, sin] = angles.map(|table| table.load_vec2(j * 8));
                    for i in [0, 1] {
                        let (x, y) = (a[half + i].get(), b[half + i].get());
                        a[half + i].set(x * cos[i] + y * sin[i]);
                        b[half + i].set(y * cos[i] - x * sin[i]);
                    }
                }
            });
        }
    }

    /// Rotates four elements of `row`, from `column` on. `load` loads as many from another column.
    pub(super) fn rotate_vec4(
        &self,
        (row, column): (Value<'k, u32>, Value<'k, u32>),
        load: impl Fn(Value<'k, u32>) -> [Value<'k, f32>; 4],
    ) -> [Value<'k, f32>; 4] {
        let k = &row.kernel();
        let rotated = load(column).map(|element| k.var(element));
        k.when(self.applies(), || {
            let in_second = column.ge(self.half);
            let pair = in_second.select(column - self.half, column);
            let partner = load(in_second.select(pair, column + self.half));
            let [cos, sin] = self.angles(k, row).map(|table| table.at(pair).load_vec4(0));
            for i in 0..4 {
                let sin = in_second.select(-sin[i], sin[i]);
                rotated[i].update(|x| x * cos[i] + partner[i] * sin);
            }
        });
        rotated.map(|element| element.get())
    }
}
