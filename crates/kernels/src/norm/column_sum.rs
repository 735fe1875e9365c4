//! The sum of each column: gradients of biases, and the last stage of split reductions.

use retrograph_kernel_abi::norm as abi;

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

/// Kernel of [`ColumnSum`].
pub static COLUMN_SUM: Kernel = Kernel::new("column_sum", &abi::COLUMN_SUM, dispatch);

/// From this number of rows on, more threads share a column.
const MANY_ROWS: u32 = 1024;

/// One block for each run of columns.
pub(super) fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let [rows, columns] = problem.columns()?;
    let index = usize::from(rows >= MANY_ROWS);
    let [block_columns, lanes] = abi::COLUMN_SUM_BLOCKS[index];
    let entry = abi::COLUMN_SUM.entries[index];
    Some(linear(entry, columns.div_ceil(block_columns), block_columns * lanes))
}

/// `out[c] (+)= Σ_r x[r, c]`; zero without rows.
///
/// Deterministic: sixteen threads sum every sixteenth row each, or 128 threads every 128th row if
/// there are 1024 rows or more. Their sums are added in order, and then the previous value.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSum<B> {
    /// `[rows, columns]`, read.
    pub x: View<B, f32>,
    /// `[columns]`, written, or added to.
    pub out: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Whether `out` is added to instead of overwritten.
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

/// The launch of a column sum whose lengths were checked.
pub(super) fn launch<B: Copy>(check: Check, sum: ColumnSum<B>) -> Result<Launch<B>, KernelError> {
    let ColumnSum { x, out, rows, columns, accumulate } = sum;
    // The kernel counts rows and columns in steps, which must not wrap around.
    let limit = (u32::MAX / 2) as usize;
    let rows = check.at_most("rows", rows, limit)?;
    let columns = check.at_most("columns", columns, limit)?;
    let (x, out) = (Pointer::read(x), Pointer::output(out, accumulate));
    let parameters =
        abi::ColumnSumParameters::<ArgumentTypes<B>> { x, out, rows, columns, accumulate };
    let arguments = parameters.into_arguments();
    Ok(Launch { kernel: &COLUMN_SUM, problem: Problem::Columns { rows, columns }, arguments })
}
