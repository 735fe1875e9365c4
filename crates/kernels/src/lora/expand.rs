//! From the ranks of updates to long rows.

use super::{LOW_RANK_UPDATES, LowRankShape, LowRankSide};
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`LowRankAdd`].
pub static LOW_RANK_ADD: Kernel = Kernel {
    name: "lora_expand",
    image: "lora",
    parameters: &[
        pointer("t0"),
        pointer("t1"),
        pointer("t2"),
        pointer("w0"),
        pointer("w1"),
        pointer("w2"),
        pointer("total0"),
        pointer("total1"),
        pointer("total2"),
        pointer("y"),
        u32("rows"),
        u32("width"),
        u32("rank"),
        u32("updates"),
        u32("parts0"),
        u32("parts1"),
        u32("parts2"),
        f32("alpha"),
        u32("accumulate"),
    ],
    entries: &["lora_expand_a", "lora_expand_b"],
    dispatch,
};

/// Rows of a block.
const ROWS: u32 = 32;
/// Columns of a block.
const COLUMNS: u32 = 256;

/// A block for each 32 rows and 256 columns.
fn dispatch(problem: &Problem, _: crate::SmTarget) -> Dispatch {
    let [rows, width, side, ..] = problem.sizes;
    let entry = LOW_RANK_ADD.entries[(side as usize).min(1)];
    Dispatch { grid: [rows.div_ceil(ROWS), width.div_ceil(COLUMNS), 1], ..linear(entry, 1, 256) }
}

/// An update and what is added by its matrix.
#[derive(Clone, Copy, Debug)]
pub struct LowRankAdded<B> {
    /// `parts × rows × rank`, read.
    pub t: View<B, f32>,
    /// Number of parts of t, at least 1.
    pub parts: usize,
    /// The matrix, read.
    pub w: View<B, f32>,
    /// `rows × rank`, written: the sum of the parts, without α. It is not written where y has no
    /// columns.
    pub total: Option<View<B, f32>>,
}

/// `y (+)= α·Σ t·Bᵀ` or `dx (+)= α·Σ dt·A` over one to three updates, where t is the sum of its
/// parts in ascending order.
///
/// An element is one chain of fused multiply-adds, which begins with what is there.
#[derive(Clone, Copy, Debug)]
pub struct LowRankAdd<'a, B> {
    /// The updates.
    pub updates: &'a [LowRankAdded<B>],
    /// Which matrices `w` are.
    pub side: LowRankSide,
    /// y or dx, `rows × width`, written, or added to.
    pub y: View<B, f32>,
    /// The sizes.
    pub shape: LowRankShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> LowRankAdd<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { updates, side, y, shape, alpha, accumulate } = self;
        let check = Check(LOW_RANK_ADD.name);
        let count = super::updates(check, updates.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.length("y", y, shape.long(check)?)?;
        let mut parts = [0; LOW_RANK_UPDATES];
        for (update, planes) in updates.iter().zip(&mut parts) {
            check.rule(update.parts > 0, "there is a part", (update.parts, 1))?;
            // The kernel counts parts in steps of four.
            *planes = check.at_most("parts", update.parts, 65_535)?;
            let elements = check.product("rows × rank", &[shape.rows, shape.rank])?;
            check.length("t", update.t, check.product("parts × t", &[update.parts, elements])?)?;
            check.length("w", update.w, shape.matrix(check)?)?;
            update.total.map_or(Ok(()), |total| check.length("total", total, elements))?;
        }
        let total = if width == 0 { Argument::update } else { Argument::write };
        let mut arguments: Vec<_> =
            super::each(updates.iter().map(|it| Some(it.t)), Argument::read).collect();
        arguments.extend(super::each(updates.iter().map(|it| Some(it.w)), Argument::read));
        arguments.extend(super::each(updates.iter().map(|it| it.total), total));
        arguments.push(if accumulate { Argument::update(y) } else { Argument::write(y) });
        arguments.extend([rows, width, rank, count].into_iter().chain(parts).map(Argument::U32));
        arguments.extend([Argument::f32(alpha), Argument::U32(accumulate.into())]);
        let problem = Problem::from([rows, width, side.number()]);
        Ok(Launch { kernel: &LOW_RANK_ADD, problem, arguments })
    }
}
