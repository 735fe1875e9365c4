//! Products of f32 by tensor cores that know 11 bits of a factor: three of them for each.
//!
//! A factor x is the sum of h, x rounded to 11 bits, and of l = x − h, which is exact and of which
//! 11 bits are multiplied. x·y is then l·h' + h·l' + h·h'; what is left out is smaller by 2⁻²². The
//! way is that of Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
//! surpassing the FP32 theoretical peak performance", arXiv 2203.03341: tensor cores cut bits off
//! where f32 rounds, so that what they add up must stay short; each stage is added up from zero,
//! and stages are added in f32.
//!
//! A factor that is infinite makes l a NaN, and so does a finite one that rounds to infinity
//! (beyond 3.4026e38): an element that depends on it is NaN.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::panel::Panel;
use crate::gemm::brain::{Patch, matrix_of, patches};
use crate::gemm::operand::Contiguous;
use crate::primitives::tf32::split;

/// Steps of the contraction that tensor cores take at a time.
pub(super) const STEPS: u32 = 8;

/// One operand as a warp reads it.
pub(super) struct Split<'k> {
    kernel: Kernel<'k>,
    panel: Panel,
    /// Word of the element that the lane points a matrix load to, or of the first that it reads.
    loaded: Value<'k, u32>,
    /// Word of the lane's first row or column of c, without tensor cores.
    own: Value<'k, u32>,
    /// Whether the operand is a.
    rows: bool,
}

/// What a lane has of 16 rows, or of 16 columns, in 8 steps, in the order of the instruction.
pub(super) type Words<'k> = [Value<'k, u32>; 4];
/// Its parts: h and l.
pub(super) type Parts<'k> = [Words<'k>; 2];

/// The parts of what a lane has.
pub(super) fn parts(words: Words<'_>) -> Parts<'_> {
    let parts = words.map(split);
    [parts.map(|[high, _]| high), parts.map(|[_, low]| low)]
}

impl<'k> Split<'k> {
    /// Operand 0 or 1 of a warp whose part of c begins at row or column `origin` of the tile.
    pub(super) fn new(
        k: &Kernel<'k>,
        panel: Panel,
        origin: Value<'k, u32>,
        operand: usize,
    ) -> Self {
        let (rows, lane, pitch) = (operand == 0, k.lane(), panel.pitch());
        let (line, step) = matrix_of(k, rows);
        let element = origin + if rows { lane >> 2 } else { (lane & 3) * 2 };
        let (loaded, own) = match panel.contiguous {
            // A row of a matrix is four words, which are eight elements of bf16.
            Contiguous::Contraction => {
                ((origin + line + (lane & 7)) * pitch + (step >> 1), element * pitch)
            }
            Contiguous::Extent => ((lane & 3) * pitch + origin + (lane >> 2), element),
        };
        Self { kernel: *k, panel, loaded, own, rows }
    }

    /// The parts of 16 rows or columns from `extent`, in 8 steps from `step`.
    fn load(&self, stage: Shared<'k, u32>, place: [u32; 2]) -> Parts<'k> {
        parts(self.words(stage, place))
    }

    /// 16 rows or columns from `extent`, in 8 steps from `step`, as they are.
    pub(super) fn words(&self, stage: Shared<'k, u32>, [extent, step]: [u32; 2]) -> Words<'k> {
        let (first, pitch) = (stage.at(self.loaded), self.panel.pitch());
        match self.panel.contiguous {
            Contiguous::Contraction => {
                first.offset((extent * pitch + step).into()).load_matrices(false)
            }
            Contiguous::Extent => {
                let first = first.offset((step * pitch + extent).into());
                let lines = if self.rows { [(0, 0), (8, 0), (0, 4), (8, 4)] } else { B };
                lines.map(|(extent, step)| first.offset((step * pitch + extent).into()).load(0))
            }
        }
    }

    /// The element at step `step` of the lane's row or column `extent` further.
    fn element(
        &self,
        stage: Shared<'k, u32>,
        (extent, step): (u32, Value<'k, u32>),
    ) -> Value<'k, f32> {
        let (own, pitch) = (stage.at(self.own), self.panel.pitch());
        let word = match self.panel.contiguous {
            Contiguous::Contraction => own.offset((extent * pitch).into()).load(step),
            Contiguous::Extent => own.offset(extent.into()).load(step * pitch),
        };
        Value::<f32>::from_bits(word)
    }
}

/// Column and step of the elements of b, as far as they lie behind the first.
const B: [(u32, u32); 4] = [(0, 0), (0, 4), (8, 0), (8, 4)];

/// Adds the products of a stage, `depth` steps, to `sums`.
pub(super) fn multiply<'k>(
    (k, target): (&Kernel<'k>, SmTarget),
    depth: u32,
    (operands, stages): (&[Split<'k>; 2], [Shared<'k, u32>; 2]),
    sums: &[Vec<Patch<'k>>],
) {
    if !target.features().bf16_mma {
        return fused(depth, operands, stages, sums);
    }
    let [a, b] = operands;
    let [down, across] = [sums.len() as u32, sums[0].len() as u32];
    let fresh = patches(k, [down * 16, across * 8]);
    for step in (0..depth).step_by(STEPS as usize) {
        let columns: Vec<_> = (0..across / 2).map(|j| b.load(stages[1], [j * 16, step])).collect();
        for (i, patches) in (0..).zip(&fresh) {
            let [high, low] = a.load(stages[0], [i * 16, step]);
            // The smallest products first.
            for (row, part) in [(low, 0), (high, 1), (high, 0)] {
                for (j, patch) in patches.iter().enumerate() {
                    let column = columns[j / 2][part];
                    let first = j % 2 * 2;
                    k.multiply_tf32(row, [column[first], column[first + 1]], *patch);
                }
            }
        }
    }
    for (sum, fresh) in sums.iter().flatten().zip(fresh.iter().flatten()) {
        sum.iter().zip(fresh).for_each(|(sum, fresh)| sum.add_assign(*fresh));
    }
}

/// The same without tensor cores and without splitting, one step at a time.
fn fused<'k>(
    depth: u32,
    [a, b]: &[Split<'k>; 2],
    stages: [Shared<'k, u32>; 2],
    sums: &[Vec<Patch<'k>>],
) {
    a.kernel.range(0, depth, 1, |step| {
        let across = sums[0].len() as u32;
        let columns: Vec<_> =
            (0..across * 2).map(|j| b.element(stages[1], (j / 2 * 8 + j % 2, step))).collect();
        for (i, patches) in (0..).zip(sums) {
            let rows = [0, 8].map(|below| a.element(stages[0], (i * 16 + below, step)));
            for (j, patch) in patches.iter().enumerate() {
                for (place, sum) in patch.iter().enumerate() {
                    let (x, y) = (rows[place / 2], columns[j * 2 + place % 2]);
                    sum.update(|sum| x.fma(y, sum));
                }
            }
        }
    });
}
