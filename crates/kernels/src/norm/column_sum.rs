//! Column sums, for bias gradients and as the last stage of two-stage reductions.

use retrograph_kernel_abi::norm::{self as abi, COLUMN_SUM_COLUMNS, COLUMN_SUM_LANES};

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`ColumnSum`].
pub static COLUMN_SUM: Kernel = Kernel::new("column_sum", &abi::COLUMN_SUM, dispatch);

/// One block per 32 columns.
pub(super) fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let blocks = problem.columns()?.div_ceil(COLUMN_SUM_COLUMNS);
    Some(linear(abi::COLUMN_SUM.entry(), blocks, COLUMN_SUM_COLUMNS * COLUMN_SUM_LANES))
}

/// `out[c] (+)= Σ_r x[r, c]`; zero without rows.
///
/// Deterministic: each of sixteen threads adds every sixteenth row. Their sums are added in order,
/// and the previous value last.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSum<B> {
    /// `[rows, columns]`, read.
    pub x: View<B, f32>,
    /// `[columns]`, written; also read if `accumulate` is set.
    pub out: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Whether the sums are added to `out` instead of overwriting it.
    pub accumulate: bool,
}

impl<B: Copy> ColumnSum<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or a size exceeds the limit of the kernel.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(COLUMN_SUM.name);
        let elements = check.product("rows × columns", &[self.rows, self.columns])?;
        check.length("x", self.x, elements)?;
        check.length("out", self.out, self.columns)?;
        launch(check, *self)
    }
}

/// Describes the launch of a column sum whose lengths were checked.
pub(super) fn launch<B: Copy>(check: Check, sum: ColumnSum<B>) -> Result<Launch<B>, KernelError> {
    let ColumnSum { x, out, rows, columns, accumulate } = sum;
    // The kernel's row index advances in steps of the lanes and must not wrap around.
    let rows = check.at_most("rows", rows, (u32::MAX - COLUMN_SUM_LANES) as usize)?;
    let columns = check.at_most("columns", columns, (u32::MAX - COLUMN_SUM_COLUMNS) as usize)?;
    let (x, out) = (Pointer::read(x), Pointer::output(out, accumulate));
    let parameters =
        abi::ColumnSumParameters::<ArgumentTypes<B>> { x, out, rows, columns, accumulate };
    let arguments = parameters.into_arguments();
    Ok(Launch { kernel: &COLUMN_SUM, problem: Problem::Columns(columns), arguments })
}
