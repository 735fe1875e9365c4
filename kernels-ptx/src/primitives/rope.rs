//! RoPE of accumulators and its inverse, see [`rope`](crate::rope).

use std::ops::Range;

use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::mma::{AccFragment, fragment_column};

/// The tables of RoPE, and the positions of tokens in them.
#[derive(Clone, Copy)]
pub(crate) struct RopeTables<'k> {
    /// Cosines and sines, or null.
    tables: [Ptr<'k, f32>; 2],
    /// Positions of all tokens, or null.
    token_positions: Ptr<'k, u32>,
    /// The last row.
    last: Value<'k, u32>,
    /// Half the head dimension.
    half: Value<'k, u32>,
}

/// The direction of a rotation.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Forward,
    Inverse,
}

impl<'k> RopeTables<'k> {
    /// Tables with `positions` rows, for heads of `head_dim` elements.
    pub(crate) fn new(
        tables: [Ptr<'k, f32>; 2],
        token_positions: Ptr<'k, u32>,
        [positions, head_dim]: [Value<'k, u32>; 2],
    ) -> Self {
        Self { tables, token_positions, last: positions - 1, half: head_dim >> 1 }
    }

    /// Whether there are tables.
    pub(crate) fn exist(&self) -> Pred<'k> {
        !self.tables[0].is_null()
    }

    /// Half the head dimension.
    pub(crate) fn half(&self) -> Value<'k, u32> {
        self.half
    }

    /// The cosines and sines of `token`. Its position is `counted` unless the launch gives
    /// positions.
    pub(crate) fn angles(
        &self,
        k: &Kernel<'k>,
        [token, counted]: [Value<'k, u32>; 2],
    ) -> [Ptr<'k, f32>; 2] {
        let position = k.var(counted);
        k.when(!self.token_positions.is_null(), || position.set(self.token_positions.load(token)));
        let first = position.get().min(self.last).mul_wide(self.half);
        self.tables.map(|table| table.at(first))
    }
}

impl Direction {
    /// Rotates a pair of elements.
    pub(crate) fn rotate<'k>(
        self,
        [x, y]: [Value<'k, f32>; 2],
        [cos, sin]: [Value<'k, f32>; 2],
    ) -> [Value<'k, f32>; 2] {
        match self {
            Self::Forward => [x * cos - y * sin, y * cos + x * sin],
            Self::Inverse => [x * cos + y * sin, y * cos - x * sin],
        }
    }

    /// Rotates elements of a row of `heads`, which all have the same number of accumulators: the
    /// pairs of fragments in `pairs`, counted in the first half of a head. `lane_row` is the index
    /// of the row in [`LANE_ROWS`](super::mma::LANE_ROWS).
    pub(crate) fn rotate_row<'k>(
        self,
        heads: &[&[AccFragment<'k>]],
        pairs: Range<usize>,
        lane_row: usize,
        angles: [Ptr<'k, f32>; 2],
    ) {
        let k = &angles[0].kernel();
        let angles = angles.map(|table| table.at(fragment_column(k)));
        for j in pairs {
            let [cos, sin] = angles.map(|table| table.load_vec2(j as u32 * 8));
            for (a, b) in heads.iter().map(|head| (head[j], head[j + head.len() / 2])) {
                for i in [0, 1] {
                    let (x, y) = (a[lane_row * 2 + i], b[lane_row * 2 + i]);
                    let rotated = self.rotate([x.get(), y.get()], [cos[i], sin[i]]);
                    x.set(rotated[0]);
                    y.set(rotated[1]);
                }
            }
        }
    }
}
