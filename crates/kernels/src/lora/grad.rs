//! The gradients of the matrices of updates.

use super::{LowRankShape, LowRankSide};
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`LowRankGrad`].
pub static LOW_RANK_GRAD: Kernel = Kernel {
    name: "lora_grad",
    image: "lora",
    parameters: &[
        pointer("x"),
        pointer("t0"),
        pointer("t1"),
        pointer("t2"),
        pointer("out0"),
        pointer("out1"),
        pointer("out2"),
        u32("rows"),
        u32("width"),
        u32("rank"),
        u32("run"),
        f32("alpha"),
        u32("accumulate"),
    ],
    entries: &["lora_grad_a", "lora_grad_b"],
    dispatch,
};

/// Columns of a block.
const COLUMNS: usize = 128;
/// Ranks of a block.
const RANKS: usize = 16;
/// Rows that the warps of a block have under way at once.
const BATCH: usize = 32;
/// Blocks that keep a device of 132 multiprocessors busy: three on each.
const ENOUGH_BLOCKS: usize = 396;

/// As many runs as give enough blocks. Few rows are one run, which needs no second launch.
pub(crate) fn runs(shape: LowRankShape, updates: usize) -> usize {
    let batches = shape.rows.div_ceil(BATCH);
    if batches <= 2 {
        return 1;
    }
    let ranks = shape.rank.div_ceil(RANKS).saturating_mul(updates);
    let blocks = shape.width.div_ceil(COLUMNS).saturating_mul(ranks).max(1);
    let wanted = ENOUGH_BLOCKS.div_ceil(blocks).clamp(1, batches);
    batches.div_ceil(batches.div_ceil(wanted))
}

/// A block for each run, 128 columns and 16 ranks of an update.
fn dispatch(problem: &Problem, _: crate::SmTarget) -> Dispatch {
    let [runs, width, ranks, side, ..] = problem.sizes;
    let entry = LOW_RANK_GRAD.entries[(side as usize).min(1)];
    Dispatch { grid: [runs, width.div_ceil(COLUMNS as u32), ranks], ..linear(entry, 1, 128) }
}

/// An update and the gradient of its matrix.
#[derive(Clone, Copy, Debug)]
pub struct LowRankGraded<B> {
    /// t or dt, `rows × rank`, read.
    pub t: View<B, f32>,
    /// `runs ×` the matrix: written, or added to.
    pub out: View<B, f32>,
}

/// `dB = α·dyᵀ·t` or `dA = α·dtᵀ·x` of one to three updates, in runs of rows: the gradient is the
/// sum of the runs, which [`ColumnSum`](crate::ops::ColumnSum) adds up.
///
/// Of a run an element is four chains of fused multiply-adds, each over every fourth row, which are
/// added in order.
#[derive(Clone, Copy, Debug)]
pub struct LowRankGrad<'a, B> {
    /// dy or x, `rows × width`, read.
    pub x: View<B, f32>,
    /// The updates.
    pub updates: &'a [LowRankGraded<B>],
    /// Which matrices these are the gradients of.
    pub side: LowRankSide,
    /// The sizes.
    pub shape: LowRankShape,
    /// Number of runs, at least 1: see [`LowRankShape::runs`].
    pub runs: usize,
    /// The factor α.
    pub alpha: f32,
    /// Whether `out` is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> LowRankGrad<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, updates, side, shape, runs, alpha, accumulate } = self;
        let check = Check(LOW_RANK_GRAD.name);
        let count = super::updates(check, updates.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.rule(runs > 0, "there is a run", (runs, 1))?;
        let planes = check.at_most("runs", runs, 1 << 24)?;
        check.length("x", x, shape.long(check)?)?;
        for update in updates {
            let elements = check.product("rows × rank", &[shape.rows, shape.rank])?;
            check.length("t", update.t, elements)?;
            let out = check.product("runs × the matrix", &[runs, shape.matrix(check)?])?;
            check.length("out", update.out, out)?;
        }
        let run = shape.rows.div_ceil(BATCH).div_ceil(runs) * BATCH;
        let out = if accumulate { Argument::update } else { Argument::write };
        let mut arguments = vec![Argument::read(x)];
        arguments.extend(super::each(updates.iter().map(|it| Some(it.t)), Argument::read));
        arguments.extend(super::each(updates.iter().map(|it| Some(it.out)), out));
        arguments.extend([rows, width, rank, run as u32].map(Argument::U32));
        arguments.extend([Argument::f32(alpha), Argument::U32(accumulate.into())]);
        let problem =
            Problem::from([planes, width, rank.div_ceil(RANKS as u32) * count, side.number()]);
        Ok(Launch { kernel: &LOW_RANK_GRAD, problem, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_fill_a_device_and_few_rows_are_one() {
        let runs = |rows, width, rank, updates| LowRankShape { rows, width, rank }.runs(updates);
        // B of q and of v, and A of both, of Qwen2.5 1.5B.
        assert_eq!((runs(2048, 1536, 16, 1), runs(2048, 256, 16, 1)), (32, 64));
        assert_eq!(runs(2048, 1536, 16, 2), 16);
        assert_eq!((runs(64, 1536, 16, 1), runs(65, 1536, 16, 1)), (1, 3));
        assert_eq!((runs(0, 0, 0, 0), runs(usize::MAX, usize::MAX, usize::MAX, 3)), (1, 1));
    }
}
