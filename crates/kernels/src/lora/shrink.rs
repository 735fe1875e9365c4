//! LoRA shrink: multiplies x or dy by A or B; the result has rank elements per row.

use retrograph_kernel_abi::lora::{self as abi, LoraMatrix, shrink as geometry};

use super::shape::{LoraShape, adapter_count, per_adapter};
use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, SMS, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`LoraShrink`].
pub static LORA_SHRINK: Kernel = Kernel::new("lora_shrink", &abi::SHRINK, dispatch);

/// Rows of a block.
const BLOCK_ROWS: usize = geometry::ROWS as usize;
/// Contraction length per stage.
const BLOCK_K: usize = geometry::TILE_K as usize;
/// Two blocks on each SM.
const MIN_BLOCKS: usize = 2 * SMS as usize;
/// The most splits: [`LoraExpand`](super::LoraExpand) reads each of them again.
const MAX_SPLITS: usize = 32;

/// Whether blocks have the larger of [`geometry::RANKS`]; `ranks` is the total rank of all
/// adapters.
fn is_wide(ranks: usize) -> bool {
    ranks > geometry::RANKS[0] as usize
}

/// Ranks of a block; `ranks` is the total rank of all adapters.
fn block_ranks(ranks: usize) -> usize {
    geometry::RANKS[usize::from(is_wide(ranks))] as usize
}

impl LoraShape {
    /// Number of splits of the contraction of a [`LoraShrink`] of `adapters` adapters.
    pub fn shrink_splits(self, adapters: usize) -> usize {
        splits(self, adapters)
    }
}

/// The fewest splits that give enough blocks, each at least two stages long.
fn splits(shape: LoraShape, adapters: usize) -> usize {
    let ranks = shape.rank.saturating_mul(adapters);
    let row_blocks = shape.rows.div_ceil(BLOCK_ROWS).max(1);
    let blocks = row_blocks.saturating_mul(ranks.div_ceil(block_ranks(ranks)));
    let stages = shape.width.div_ceil(BLOCK_K);
    let most = (stages / 2).clamp(1, MAX_SPLITS);
    let wanted = MIN_BLOCKS.div_ceil(blocks.max(1)).clamp(1, most);
    stages.div_ceil(stages.div_ceil(wanted).max(1)).max(1)
}

/// One block for each 64 rows, each split, and each 16 or 32 ranks.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let Problem::LoraShrink { rows, ranks, splits, matrix } = *problem else { return None };
    let block_ranks = block_ranks(ranks as usize) as u32;
    let entry = geometry::entry(matrix, is_wide(ranks as usize));
    let grid = [rows.div_ceil(BLOCK_ROWS as u32), splits, ranks.div_ceil(block_ranks)];
    Some(Dispatch { grid, ..linear(entry, 1, geometry::THREADS) })
}

/// An adapter in [`LoraShrink`].
#[derive(Clone, Copy, Debug)]
pub struct LoraShrinkAdapter<B> {
    /// The matrix, read.
    pub w: View<B, f32>,
    /// t or dt, `[splits, rows, rank]`, written.
    pub out: View<B, f32>,
}

/// `t = α·x·Aᵀ` or `dt = α·dy·B` of one to three adapters, with a split contraction:
/// [`LoraExpand`](super::LoraExpand) adds the splits to t.
///
/// In a split, each of four chains of fused multiply-adds has a quarter of every 64 elements; they
/// are added in order.
#[derive(Clone, Copy, Debug)]
pub struct LoraShrink<'a, B> {
    /// x or dy, `[rows, width]`, read.
    pub x: View<B, f32>,
    /// The adapters.
    pub adapters: &'a [LoraShrinkAdapter<B>],
    /// Whether each `w` is A or B.
    pub matrix: LoraMatrix,
    /// The sizes.
    pub shape: LoraShape,
    /// Number of splits, at least 1; see [`LoraShape::shrink_splits`].
    pub splits: usize,
    /// The scale α.
    pub alpha: f32,
}

impl<B: Copy> LoraShrink<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are no adapters or more than three, `splits` is 0 or too large, or a length does
    /// not match the shape.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, adapters, matrix, shape, splits, alpha } = self;
        let check = Check(LORA_SHRINK.name);
        let count = adapter_count(check, adapters.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.rule(splits > 0, "there must be at least one split", splits)?;
        let planes = check.at_most("splits", splits, MAX_GRID_YZ)?;
        check.length("x", x, shape.long_elements(check)?)?;
        for adapter in adapters {
            check.length("w", adapter.w, shape.matrix_elements(check)?)?;
            let what = "splits × rows × rank";
            let elements = check.product(what, &[splits, shape.rows, shape.rank])?;
            check.length("out", adapter.out, elements)?;
        }
        let split_k = shape.width.div_ceil(BLOCK_K).div_ceil(splits) * BLOCK_K;
        let [w0, w1, w2] = per_adapter(adapters, |it| Some(it.w), Pointer::read);
        let [out0, out1, out2] = per_adapter(adapters, |it| Some(it.out), Pointer::write);
        let parameters = abi::ShrinkParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            w0,
            w1,
            w2,
            out0,
            out1,
            out2,
            rows,
            width,
            rank,
            adapters: count,
            split_len: split_k as u32,
            alpha,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::LoraShrink { rows, ranks: rank * count, splits: planes, matrix };
        Ok(Launch { kernel: &LORA_SHRINK, problem, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(rows: usize, width: usize, rank: usize, adapters: usize) -> usize {
        LoraShape { rows, width, rank }.shrink_splits(adapters)
    }

    #[test]
    fn splits_fill_a_device() {
        // q and v of Qwen2.5 1.5B.
        let rows = 2048;
        let blocks = rows / BLOCK_ROWS * splits(rows, 1536, 16, 2);
        assert!((MIN_BLOCKS / 2..=2 * MIN_BLOCKS).contains(&blocks), "{blocks}");
        assert_eq!(splits(1 << 20, 1536, 16, 1), 1);
    }

    #[test]
    fn splits_have_at_least_two_stages_and_are_not_too_many() {
        for width in [1536, 8960, 1 << 20] {
            let splits = splits(32, width, 16, 1);
            assert!(splits <= MAX_SPLITS && width / splits >= 2 * BLOCK_K - BLOCK_K, "{width}");
        }
        assert_eq!(splits(32, 64, 16, 1), 1);
    }

    #[test]
    fn no_size_overflows() {
        let most = usize::MAX;
        assert_eq!((splits(0, 0, 0, 0), splits(most, most, most, 3)), (1, 1));
    }
}
