//! LoRA expand: multiplies t or dt, which have rank elements per row, by B or A.

use retrograph_kernel_abi::lora::{self as abi, LoraMatrix, expand as geometry};

use super::shape::{LORA_MAX_ADAPTERS, LoraShape, adapter_count, per_adapter};
use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`LoraExpand`].
pub static LORA_EXPAND: Kernel = Kernel::new("lora_expand", &abi::EXPAND, dispatch);

/// One block for each 32 rows and 256 columns.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let Problem::LoraExpand { rows, width, matrix } = *problem else { return None };
    let grid = [rows.div_ceil(geometry::ROWS), width.div_ceil(geometry::COLUMNS), 1];
    Some(Dispatch { grid, ..linear(geometry::entry(matrix), 1, geometry::THREADS) })
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
    /// Whether each `w` is A or B.
    pub matrix: LoraMatrix,
    /// y or dx, `[rows, width]`, written, or added to.
    pub y: View<B, f32>,
    /// The sizes.
    pub shape: LoraShape,
    /// The scale α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> LoraExpand<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are no adapters or more than three, a number of splits is 0 or too large, or a
    /// length does not match the shape.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { adapters, matrix, y, shape, alpha, accumulate } = self;
        let check = Check(LORA_EXPAND.name);
        let count = adapter_count(check, adapters.len())?;
        let [rows, width, rank] = shape.sizes(check)?;
        check.length("y", y, shape.long_elements(check)?)?;
        let mut splits = [0; LORA_MAX_ADAPTERS];
        for (adapter, splits) in adapters.iter().zip(&mut splits) {
            check.rule(adapter.splits > 0, "t must have at least one split", adapter.splits)?;
            // The kernel reads splits in steps of four.
            *splits = check.at_most("splits", adapter.splits, MAX_GRID_YZ)?;
            let elements = check.product("rows × rank", &[shape.rows, shape.rank])?;
            let t_elements = check.product("splits × t", &[adapter.splits, elements])?;
            check.length("t", adapter.t, t_elements)?;
            check.length("w", adapter.w, shape.matrix_elements(check)?)?;
            adapter.total.map_or(Ok(()), |total| check.length("total", total, elements))?;
        }
        let total = if width == 0 { Pointer::update } else { Pointer::write };
        let [t0, t1, t2] = per_adapter(adapters, |it| Some(it.t), Pointer::read);
        let [w0, w1, w2] = per_adapter(adapters, |it| Some(it.w), Pointer::read);
        let [t_sum0, t_sum1, t_sum2] = per_adapter(adapters, |it| it.total, total);
        let [splits0, splits1, splits2] = splits;
        let parameters = abi::ExpandParameters::<ArgumentTypes<B>> {
            t0,
            t1,
            t2,
            w0,
            w1,
            w2,
            t_sum0,
            t_sum1,
            t_sum2,
            y: Pointer::output(y, accumulate),
            rows,
            width,
            rank,
            adapters: count,
            splits0,
            splits1,
            splits2,
            alpha,
            accumulate,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::LoraExpand { rows, width, matrix };
        Ok(Launch { kernel: &LORA_EXPAND, problem, arguments })
    }
}
