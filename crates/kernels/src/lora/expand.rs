//! From the ranks of adapters to long rows.

use super::{LORA_MAX_ADAPTERS, LoraMatrix, LoraShape};
use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, linear};
use crate::params::{f32, pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`LoraExpand`].
pub static LORA_EXPAND: Kernel = Kernel {
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
const BLOCK_ROWS: u32 = 32;
/// Columns of a block.
const BLOCK_COLUMNS: u32 = 256;

/// One block for each 32 rows and 256 columns.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let Problem::LoraExpand { rows, width, matrix } = *problem else { return None };
    let entry = LORA_EXPAND.entries[matrix as usize];
    let grid = [rows.div_ceil(BLOCK_ROWS), width.div_ceil(BLOCK_COLUMNS), 1];
    Some(Dispatch { grid, ..linear(entry, 1, 256) })
}

/// An adapter in [`LoraExpand`].
#[derive(Clone, Copy, Debug)]
pub struct LoraExpandAdapter<B> {
    /// `[splits, rows, rank]`, read.
    pub t: View<B, f32>,
    /// Number of splits of t, at least 1.
    pub splits: usize,
    /// The matrix, read.
    pub w: View<B, f32>,
    /// `[rows, rank]`, written: the sum of the splits, without α. It is not written if y has no
    /// columns.
    pub total: Option<View<B, f32>>,
}

/// `y (+)= α·Σ t·Bᵀ` or `dx (+)= α·Σ dt·A` over one to three adapters. t is the sum of its splits
/// in ascending order.
///
/// Each element is one chain of fused multiply-adds, starting from the previous value if
/// `accumulate` is set.
#[derive(Clone, Copy, Debug)]
pub struct LoraExpand<'a, B> {
    /// The adapters.
    pub adapters: &'a [LoraExpandAdapter<B>],
    /// Which matrices `w` are.
    pub matrix: LoraMatrix,
    /// y or dx, `[rows, width]`, written, or added to.
    pub y: View<B, f32>,
    /// The sizes.
    pub shape: LoraShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> LoraExpand<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { adapters, matrix, y, shape, alpha, accumulate } = self;
        let check = Check(LORA_EXPAND.name);
        let count = super::adapters(check, adapters.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.length("y", y, shape.long_elements(check)?)?;
        let mut splits = [0; LORA_MAX_ADAPTERS];
        for (adapter, splits) in adapters.iter().zip(&mut splits) {
            check.rule(adapter.splits > 0, "t must have a split", (adapter.splits, 1))?;
            // The kernel counts splits in steps of four.
            *splits = check.at_most("splits", adapter.splits, MAX_GRID_YZ)?;
            let elements = check.product("rows × rank", &[shape.rows, shape.rank])?;
            let t_elements = check.product("splits × t", &[adapter.splits, elements])?;
            check.length("t", adapter.t, t_elements)?;
            check.length("w", adapter.w, shape.matrix_elements(check)?)?;
            adapter.total.map_or(Ok(()), |total| check.length("total", total, elements))?;
        }
        let total = if width == 0 { Argument::update } else { Argument::write };
        let mut arguments: Vec<_> =
            super::per_adapter(adapters.iter().map(|it| Some(it.t)), Argument::read).collect();
        arguments.extend(super::per_adapter(adapters.iter().map(|it| Some(it.w)), Argument::read));
        arguments.extend(super::per_adapter(adapters.iter().map(|it| it.total), total));
        arguments.push(Argument::output(y, accumulate));
        arguments.extend([rows, width, rank, count].into_iter().chain(splits).map(Argument::U32));
        arguments.extend([Argument::f32(alpha), Argument::U32(accumulate.into())]);
        let problem = Problem::LoraExpand { rows, width, matrix };
        Ok(Launch { kernel: &LORA_EXPAND, problem, arguments })
    }
}
