//! From long rows to the ranks of updates.

use super::{ENOUGH_BLOCKS, LowRankShape, LowRankSide};
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`LowRankDown`].
pub static LOW_RANK_DOWN: Kernel = Kernel {
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
const ROWS: usize = 64;
/// Elements of the contraction that a block takes at a time.
const DEPTH: usize = 64;
/// The most parts, each of which is read again by those who add them.
const MOST_PARTS: usize = 32;

/// Ranks of a block, of which there are so many in all.
fn columns(ranks: usize) -> usize {
    if ranks <= 16 { 16 } else { 32 }
}

/// As many parts as give enough blocks, but none shorter than two stages.
pub(crate) fn parts(shape: LowRankShape, updates: usize) -> usize {
    let ranks = shape.rank.saturating_mul(updates);
    let blocks = shape.rows.div_ceil(ROWS).max(1).saturating_mul(ranks.div_ceil(columns(ranks)));
    let stages = shape.width.div_ceil(DEPTH);
    let most = (stages / 2).clamp(1, MOST_PARTS);
    let wanted = ENOUGH_BLOCKS.div_ceil(blocks.max(1)).clamp(1, most);
    stages.div_ceil(stages.div_ceil(wanted).max(1)).max(1)
}

/// A block for each 64 rows, part, and 16 or 32 ranks.
fn dispatch(problem: &Problem, _: crate::SmTarget) -> Dispatch {
    let [rows, ranks, parts, side, ..] = problem.sizes;
    let columns = columns(ranks as usize) as u32;
    let entry = 2 * (side as usize).min(1) + usize::from(columns > 16);
    let grid = [rows.div_ceil(ROWS as u32), parts, ranks.div_ceil(columns)];
    Dispatch { grid, ..linear(LOW_RANK_DOWN.entries[entry], 1, 256) }
}

/// An update and what is taken by its matrix.
#[derive(Clone, Copy, Debug)]
pub struct LowRankTaken<B> {
    /// The matrix, read.
    pub w: View<B, f32>,
    /// `parts × rows × rank`, written.
    pub out: View<B, f32>,
}

/// `t = α·x·Aᵀ` or `dt = α·dy·B` of one to three updates, in parts of the contraction: t is the sum
/// of the parts, which [`LowRankAdd`](crate::ops::LowRankAdd) adds up.
///
/// In a part, four chains of fused multiply-adds have each a quarter of every 64 elements, and are
/// added in order.
#[derive(Clone, Copy, Debug)]
pub struct LowRankDown<'a, B> {
    /// x or dy, `rows × width`, read.
    pub x: View<B, f32>,
    /// The updates.
    pub updates: &'a [LowRankTaken<B>],
    /// Which matrices `w` are.
    pub side: LowRankSide,
    /// The sizes.
    pub shape: LowRankShape,
    /// Number of parts, at least 1: see [`LowRankShape::parts`].
    pub parts: usize,
    /// The factor α.
    pub alpha: f32,
}

impl<B: Copy> LowRankDown<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, updates, side, shape, parts, alpha } = self;
        let check = Check(LOW_RANK_DOWN.name);
        let count = super::updates(check, updates.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.rule(parts > 0, "there is a part", (parts, 1))?;
        let planes = check.at_most("parts", parts, 65_535)?;
        check.length("x", x, shape.long(check)?)?;
        for update in updates {
            check.length("w", update.w, shape.matrix(check)?)?;
            let elements =
                check.product("parts × rows × rank", &[parts, shape.rows, shape.rank])?;
            check.length("out", update.out, elements)?;
        }
        let part = shape.width.div_ceil(DEPTH).div_ceil(parts) * DEPTH;
        let mut arguments = vec![Argument::read(x)];
        arguments.extend(super::each(updates.iter().map(|it| Some(it.w)), Argument::read));
        arguments.extend(super::each(updates.iter().map(|it| Some(it.out)), Argument::write));
        arguments.extend([rows, width, rank, count, part as u32].map(Argument::U32));
        arguments.push(Argument::f32(alpha));
        let problem = Problem::from([rows, rank * count, planes, side.number()]);
        Ok(Launch { kernel: &LOW_RANK_DOWN, problem, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_a_device_and_are_not_too_many() {
        let parts = |rows, width, rank, updates| LowRankShape { rows, width, rank }.parts(updates);
        // q and v of Qwen2.5 1.5B, and the gradient of one of them.
        assert_eq!((parts(2048, 1536, 16, 2), parts(2048, 256, 16, 1)), (8, 2));
        assert_eq!((parts(32, 1536, 16, 2), parts(32, 8960, 16, 1)), (12, 28));
        // Enough rows, nothing to cut, nothing at all.
        assert_eq!((parts(1 << 20, 1536, 16, 1), parts(32, 64, 16, 1)), (1, 1));
        assert_eq!((parts(0, 0, 0, 0), parts(usize::MAX, usize::MAX, usize::MAX, 3)), (1, 1));
    }
}
