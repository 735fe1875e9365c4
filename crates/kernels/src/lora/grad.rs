//! LoRA grad: the gradients of A and B.

use retrograph_kernel_abi::lora::{self as abi, LoraMatrix, grad as geometry};

use super::shape::{LoraShape, adapter_count, per_adapter};
use crate::checks::Check;
use crate::geometry::{SMS, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`LoraGrad`].
pub static LORA_GRAD: Kernel = Kernel::new("lora_grad", &abi::GRAD, dispatch);

/// Columns of a block.
const BLOCK_COLUMNS: usize = geometry::COLUMNS as usize;
/// Ranks of a block.
const BLOCK_RANKS: usize = geometry::RANKS as usize;
/// Rows of a block in flight.
const STAGE_ROWS: usize = geometry::ROWS_IN_FLIGHT as usize;
/// Three blocks on each SM.
const MIN_BLOCKS: usize = 3 * SMS as usize;
/// The most splits.
const MAX_SPLITS: usize = 1 << 24;

impl LoraShape {
    /// Number of splits of the rows of a [`LoraGrad`] of `adapters` adapters.
    pub fn grad_splits(self, adapters: usize) -> usize {
        splits(self, adapters)
    }
}

/// The fewest splits that give enough blocks. Few rows are not split and need no second launch.
fn splits(shape: LoraShape, adapters: usize) -> usize {
    let stages = shape.rows.div_ceil(STAGE_ROWS);
    if stages <= 2 {
        return 1;
    }
    let rank_blocks = shape.rank.div_ceil(BLOCK_RANKS).saturating_mul(adapters);
    let blocks = shape.width.div_ceil(BLOCK_COLUMNS).saturating_mul(rank_blocks).max(1);
    let wanted = MIN_BLOCKS.div_ceil(blocks).clamp(1, stages);
    stages.div_ceil(stages.div_ceil(wanted))
}

/// One block for each split, 128 columns, and 16 ranks of an adapter.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let Problem::LoraGrad { splits, width, rank_blocks, matrix } = *problem else { return None };
    let grid = [splits, width.div_ceil(geometry::COLUMNS), rank_blocks];
    Some(Dispatch { grid, ..linear(geometry::entry(matrix), 1, geometry::THREADS) })
}

/// An adapter in [`LoraGrad`].
#[derive(Clone, Copy, Debug)]
pub struct LoraGradAdapter<B> {
    /// t or dt, `[rows, rank]`, read.
    pub t: View<B, f32>,
    /// The gradient of the matrix, one per split; written, or added to.
    pub out: View<B, f32>,
}

/// `dB = α·dyᵀ·t` or `dA = α·dtᵀ·x` of one to three adapters, with split rows:
/// [`ColumnSum`](crate::norm::ColumnSum) adds the splits to the gradient.
///
/// In a split, each of four chains of fused multiply-adds has every fourth row; they are added in
/// order.
#[derive(Clone, Copy, Debug)]
pub struct LoraGrad<'a, B> {
    /// dy or x, `[rows, width]`, read.
    pub x: View<B, f32>,
    /// The adapters.
    pub adapters: &'a [LoraGradAdapter<B>],
    /// The matrix whose gradient is computed.
    pub matrix: LoraMatrix,
    /// The sizes.
    pub shape: LoraShape,
    /// Number of splits, at least 1; see [`LoraShape::grad_splits`].
    pub splits: usize,
    /// The scale α.
    pub alpha: f32,
    /// Whether `out` is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> LoraGrad<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are no adapters or more than three, `splits` is 0 or too large, or a length does
    /// not match the shape.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, adapters, matrix, shape, splits, alpha, accumulate } = self;
        let check = Check(LORA_GRAD.name);
        let count = adapter_count(check, adapters.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.rule(splits > 0, "there must be at least one split", splits)?;
        let planes = check.at_most("splits", splits, MAX_SPLITS)?;
        check.length("x", x, shape.long_elements(check)?)?;
        for adapter in adapters {
            let elements = check.product("rows × rank", &[shape.rows, shape.rank])?;
            check.length("t", adapter.t, elements)?;
            let matrix = shape.matrix_elements(check)?;
            let out = check.product("splits × the matrix", &[splits, matrix])?;
            check.length("out", adapter.out, out)?;
        }
        let split_rows = shape.rows.div_ceil(STAGE_ROWS).div_ceil(splits) * STAGE_ROWS;
        let out = |view| Pointer::output(view, accumulate);
        let [t0, t1, t2] = per_adapter(adapters, |it| Some(it.t), Pointer::read);
        let [out0, out1, out2] = per_adapter(adapters, |it| Some(it.out), out);
        let parameters = abi::GradParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            t0,
            t1,
            t2,
            out0,
            out1,
            out2,
            rows,
            width,
            rank,
            split_len: split_rows as u32,
            alpha,
            accumulate,
        };
        let arguments = parameters.into_arguments();
        let rank_blocks = rank.div_ceil(BLOCK_RANKS as u32) * count;
        let problem = Problem::LoraGrad { splits: planes, width, rank_blocks, matrix };
        Ok(Launch { kernel: &LORA_GRAD, problem, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(rows: usize, width: usize, rank: usize, adapters: usize) -> usize {
        LoraShape { rows, width, rank }.grad_splits(adapters)
    }

    #[test]
    fn splits_fill_a_device() {
        // B of q of Qwen2.5 1.5B, and A of q and v.
        for adapters in [1, 2] {
            let blocks = 1536 / BLOCK_COLUMNS * adapters * splits(2048, 1536, 16, adapters);
            assert!((MIN_BLOCKS / 2..=2 * MIN_BLOCKS).contains(&blocks), "{blocks}");
        }
    }

    #[test]
    fn few_rows_are_not_split() {
        assert_eq!(splits(64, 1536, 16, 1), 1);
        assert!(splits(65, 1536, 16, 1) > 1);
    }

    #[test]
    fn no_size_overflows() {
        let most = usize::MAX;
        assert_eq!((splits(0, 0, 0, 0), splits(most, most, most, 3)), (1, 1));
    }
}
