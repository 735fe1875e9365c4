//! What a warp multiplies of a stage: by tensor cores, or with fused multiply-adds where there are
//! none for bf16.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::Patch;
use crate::gemm::operand::Contiguous;

/// One operand as a warp reads it.
pub(in crate::gemm) struct Operand<'k> {
    contiguous: Contiguous,
    /// Words from one run of neighbours to the next.
    pitch: u32,
    /// Word of the element that the lane points a matrix load to.
    loaded: Value<'k, u32>,
    /// Words of the first row or column of the lane's part of c, at the first step of its group,
    /// and which half of a word holds it where neighbours lie along the rows or columns.
    own: Value<'k, u32>,
    half: Value<'k, u32>,
}

impl<'k> Operand<'k> {
    /// The operand of a warp whose part of c begins at row or column `origin` of the tile, and
    /// whose contraction begins at `first`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        (contiguous, pitch): (Contiguous, u32),
        (origin, first): (Value<'k, u32>, Value<'k, u32>),
        rows: bool,
    ) -> Self {
        let lane = k.lane();
        let (line, step) = matrix_of(k, rows);
        let within = lane & 7;
        let at = |line: Value<'k, u32>, along: Value<'k, u32>| line * pitch + (along >> 1);
        // The lane's row of a, or the first of its two columns of b.
        let element = origin + if rows { lane >> 2 } else { (lane & 3) * 2 };
        let (loaded, own) = match contiguous {
            Contiguous::Contraction => {
                (at(origin + line + within, first + step), at(element, first))
            }
            Contiguous::Extent => (at(first + step + within, origin + line), at(first, element)),
        };
        Self { contiguous, pitch, loaded, own, half: (element & 1) * 16 }
    }

    /// 16 rows or columns from `extent`, 16 steps from `step`, in the order of the instruction.
    fn load(&self, stage: Shared<'k, u32>, [extent, step]: [u32; 2]) -> [Value<'k, u32>; 4] {
        let (line, along, transposed) = match self.contiguous {
            Contiguous::Contraction => (extent, step, false),
            Contiguous::Extent => (step, extent, true),
        };
        let words = line * self.pitch + along / 2;
        stage.at(self.loaded).offset(words.into()).load_matrices(transposed)
    }

    /// The elements at two steps from `step` of the lane's row or column `extent` further.
    fn pair(
        &self,
        stage: Shared<'k, u32>,
        (extent, step): (u32, Value<'k, u32>),
    ) -> [Value<'k, f32>; 2] {
        let own = stage.at(self.own);
        let pitch = self.pitch;
        match self.contiguous {
            Contiguous::Contraction => {
                let word = own.offset(i64::from(extent * pitch)).load(step >> 1);
                [word << 16, word & 0xffff_0000].map(Value::<f32>::from_bits)
            }
            Contiguous::Extent => [0, 1].map(|next| {
                let own = own.offset(i64::from(next * pitch + extent / 2));
                // The second of two columns has the other half.
                let shift = if extent % 2 == 0 { self.half } else { self.half + 16 };
                Value::<f32>::from_bits((own.load(step * pitch) >> shift) << 16)
            }),
        }
    }
}

/// Row or column, and step, where the matrix begins of which a lane points a load to a row.
/// Matrices 0 to 3 of a load are those of `Kernel::multiply_bf16`: of a, 8 rows further before 8
/// steps further, of b the other way round.
pub(in crate::gemm) fn matrix_of<'k>(
    k: &Kernel<'k>,
    rows: bool,
) -> (Value<'k, u32>, Value<'k, u32>) {
    let (low, high) = (((k.lane() >> 3) & 1) * 8, (k.lane() >> 4) * 8);
    if rows { (low, high) } else { (high, low) }
}

/// Adds the products of `depth` steps to `sums`.
pub(in crate::gemm) fn multiply<'k>(
    (k, target): (&Kernel<'k>, SmTarget),
    depth: u32,
    (operands, stages): (&[Operand<'k>; 2], [Shared<'k, u32>; 2]),
    sums: &[Vec<Patch<'k>>],
) {
    if !target.features().bf16_mma {
        return fused((k, depth), operands, stages, sums);
    }
    let [a, b] = operands;
    let across = sums[0].len() as u32;
    for step in (0..depth).step_by(16) {
        let columns: Vec<_> = (0..across / 2).map(|j| b.load(stages[1], [j * 16, step])).collect();
        for (i, patches) in (0..).zip(sums) {
            let rows = a.load(stages[0], [i * 16, step]);
            for (j, patch) in patches.iter().enumerate() {
                let [first, second] = [columns[j / 2][j % 2 * 2], columns[j / 2][j % 2 * 2 + 1]];
                k.multiply_bf16(rows, [first, second], *patch);
            }
        }
    }
}

/// The same without tensor cores, two steps at a time.
fn fused<'k>(
    (k, depth): (&Kernel<'k>, u32),
    [a, b]: &[Operand<'k>; 2],
    stages: [Shared<'k, u32>; 2],
    sums: &[Vec<Patch<'k>>],
) {
    k.range(0, depth, 2, |step| {
        let across = sums[0].len() as u32;
        let columns: Vec<_> =
            (0..across * 2).map(|j| b.pair(stages[1], (j / 2 * 8 + j % 2, step))).collect();
        for (i, patches) in (0..).zip(sums) {
            let rows = [0, 8].map(|below| a.pair(stages[0], (i * 16 + below, step)));
            for (j, patch) in patches.iter().enumerate() {
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], columns[j * 2 + place % 2]);
                    sum.update(|sum| x[1].fma(y[1], x[0].fma(y[0], sum)));
                }
            }
        }
    });
}
