//! From long rows to the ranks of adapters.

use super::{LoraMatrix, LoraShape, MIN_BLOCKS};
use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, linear};
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`LoraShrink`].
pub static LORA_SHRINK: Kernel = Kernel {
    name: "lora_shrink",
    image: "lora",
    parameters: &[
        pointer("x"),
        pointer("w0"),
        pointer("w1"),
        pointer("w2"),
        pointer("out0"),
        pointer("out1"),
        pointer("out2"),
        u32("rows"),
        u32("width"),
        u32("rank"),
        u32("updates"),
        u32("part"),
        f32("alpha"),
    ],
    entries: &["lora_shrink16_a", "lora_shrink32_a", "lora_shrink16_b", "lora_shrink32_b"],
    dispatch,
};

/// Rows of a block.
const BLOCK_ROWS: usize = 64;
/// Contraction length per stage.
const BLOCK_K: usize = 64;
/// The most splits: [`LoraExpand`](super::LoraExpand) reads each of them again.
const MAX_SPLITS: usize = 32;

/// Ranks of a block, if all adapters together have `ranks`.
fn block_ranks(ranks: usize) -> usize {
    if ranks <= 16 { 16 } else { 32 }
}

/// As many splits as give enough blocks, but none shorter than two stages.
pub(super) fn splits(shape: LoraShape, adapters: usize) -> usize {
    let ranks = shape.rank.saturating_mul(adapters);
    let row_blocks = shape.rows.div_ceil(BLOCK_ROWS).max(1);
    let blocks = row_blocks.saturating_mul(ranks.div_ceil(block_ranks(ranks)));
    let stages = shape.width.div_ceil(BLOCK_K);
    let most = (stages / 2).clamp(1, MAX_SPLITS);
    let wanted = MIN_BLOCKS.div_ceil(blocks.max(1)).clamp(1, most);
    stages.div_ceil(stages.div_ceil(wanted).max(1)).max(1)
}

/// One block for each 64 rows, split, and 16 or 32 ranks.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let Problem::LoraShrink { rows, ranks, splits, matrix } = *problem else { return None };
    let block_ranks = block_ranks(ranks as usize) as u32;
    let entry = LORA_SHRINK.entries[2 * matrix as usize + usize::from(block_ranks > 16)];
    let grid = [rows.div_ceil(BLOCK_ROWS as u32), splits, ranks.div_ceil(block_ranks)];
    Some(Dispatch { grid, ..linear(entry, 1, 256) })
}

/// An adapter in [`LoraShrink`].
#[derive(Clone, Copy, Debug)]
pub struct LoraShrinkAdapter<B> {
    /// The matrix, read.
    pub w: View<B, f32>,
    /// t or dt, `[splits, rows, rank]`, written.
    pub out: View<B, f32>,
}

/// `t = α·x·Aᵀ` or `dt = α·dy·B` of one to three adapters, with a split contraction: t is the sum
/// of the splits, which [`LoraExpand`](super::LoraExpand) computes.
///
/// In a split, each of four chains of fused multiply-adds has a quarter of every 64 elements; they
/// are added in order.
#[derive(Clone, Copy, Debug)]
pub struct LoraShrink<'a, B> {
    /// x or dy, `[rows, width]`, read.
    pub x: View<B, f32>,
    /// The adapters.
    pub adapters: &'a [LoraShrinkAdapter<B>],
    /// Which matrices `w` are.
    pub matrix: LoraMatrix,
    /// The sizes.
    pub shape: LoraShape,
    /// Number of splits, at least 1; see [`LoraShape::shrink_splits`].
    pub splits: usize,
    /// The factor α.
    pub alpha: f32,
}

impl<B: Copy> LoraShrink<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, adapters, matrix, shape, splits, alpha } = self;
        let check = Check(LORA_SHRINK.name);
        let count = super::adapters(check, adapters.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.rule(splits > 0, "there must be a split", (splits, 1))?;
        let planes = check.at_most("splits", splits, MAX_GRID_YZ)?;
        check.length("x", x, shape.long_elements(check)?)?;
        for adapter in adapters {
            check.length("w", adapter.w, shape.matrix_elements(check)?)?;
            let what = "splits × rows × rank";
            let elements = check.product(what, &[splits, shape.rows, shape.rank])?;
            check.length("out", adapter.out, elements)?;
        }
        let split_k = shape.width.div_ceil(BLOCK_K).div_ceil(splits) * BLOCK_K;
        let mut arguments = vec![Argument::read(x)];
        arguments.extend(super::per_adapter(adapters.iter().map(|it| Some(it.w)), Argument::read));
        let outputs = adapters.iter().map(|it| Some(it.out));
        arguments.extend(super::per_adapter(outputs, Argument::write));
        arguments.extend([rows, width, rank, count, split_k as u32].map(Argument::U32));
        arguments.push(Argument::f32(alpha));
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
