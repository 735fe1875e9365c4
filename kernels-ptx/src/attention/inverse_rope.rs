//! The inverse of RoPE at the end of the backward pass: converts gradients of rotated queries and
//! keys to gradients before the rotation, see [`rope`](crate::rope).
//!
//! ```text
//! out[i]        = x[i] · cos[p][i] + x[i + half] · sin[p][i]        i < half, p the position
//! out[i + half] = x[i + half] · cos[p][i] − x[i] · sin[p][i]
//! ```

use retrograph_kernel_abi::attention::FlashBackwardParameters;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::mask::lane_row;
use crate::primitives::mma::{AccFragment, LANE_ROWS};
use crate::primitives::parameters::Declarations;
use crate::primitives::rope::{Direction, RopeTables};

/// The rotation of the rows of a sequence.
#[derive(Clone, Copy)]
pub(super) struct InverseRope<'k> {
    tables: RopeTables<'k>,
    /// The first token of the sequence.
    first_token: Value<'k, u32>,
}

impl<'k> InverseRope<'k> {
    /// The rotation of `sequence`.
    pub(super) fn new(
        parameters: &FlashBackwardParameters<Declarations<'k>>,
        sequence: Value<'k, u32>,
    ) -> Self {
        let FlashBackwardParameters { cos, sin, token_positions, positions, .. } = *parameters;
        let FlashBackwardParameters { seq, head_dim, .. } = *parameters;
        let tables = RopeTables::new([cos, sin], token_positions, [positions, head_dim]);
        Self { tables, first_token: sequence * seq }
    }

    /// The angles of `row`.
    fn angles(&self, k: &Kernel<'k>, row: Value<'k, u32>) -> [Ptr<'k, f32>; 2] {
        self.tables.angles(k, [self.first_token + row, row])
    }

    /// Rotates accumulators with the columns of `mma` or `wgmma`: the rows of the block from
    /// `start` on, below `rows`. The head has as many elements as the accumulators.
    pub(super) fn rotate_accumulators(
        &self,
        start: Value<'k, u32>,
        rows: Value<'k, u32>,
        acc: &[AccFragment<'k>],
    ) {
        let k = &start.kernel();
        for (index, offset) in LANE_ROWS.into_iter().enumerate() {
            let row = start + lane_row(k) + offset;
            k.when(self.tables.exist() & row.lt(rows), || {
                let pairs = 0..acc.len() / 2;
                Direction::Inverse.rotate_row(&[acc], pairs, index, self.angles(k, row));
            });
        }
    }

    /// Rotates four elements of `row`, from `column` on. `load` loads as many from another column.
    pub(super) fn rotate_vec4(
        &self,
        row: Value<'k, u32>,
        column: Value<'k, u32>,
        load: impl Fn(Value<'k, u32>) -> [Value<'k, f32>; 4],
    ) -> [Value<'k, f32>; 4] {
        let k = &row.kernel();
        let rotated = load(column).map(|element| k.var(element));
        k.when(self.tables.exist(), || {
            let half = self.tables.half();
            let in_second = column.ge(half);
            let pair = in_second.select(column - half, column);
            let partner = load(in_second.select(pair, column + half));
            let [cos, sin] = self.angles(k, row).map(|table| table.at(pair).load_vec4(0));
            for i in 0..4 {
                let sin = in_second.select(-sin[i], sin[i]);
                rotated[i].update(|x| x * cos[i] + partner[i] * sin);
            }
        });
        rotated.map(|element| element.get())
    }
}
