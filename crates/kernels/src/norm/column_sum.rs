//! The sum of each column: gradients of biases, and the last stage of split reductions.

use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, SmTarget, View};

/// Columns of one block.
const BLOCK_COLUMNS: u32 = 32;
/// Threads that share one column.
const LANES: u32 = 16;

/// The parameters of a column sum.
pub(super) static PARAMETERS: &[Parameter] =
    &[pointer("x"), pointer("out"), u32("rows"), u32("columns"), u32("accumulate")];

/// The entry points of a column sum.
pub(super) static ENTRIES: &[&str] = &["column_sum"];

/// Kernel of [`ColumnSum`].
pub static COLUMN_SUM: Kernel = Kernel {
    name: "column_sum",
    image: "column_sum",
    parameters: PARAMETERS,
    entries: ENTRIES,
    dispatch,
};

/// One block for each 32 columns.
pub(super) fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let blocks = problem.columns()?.div_ceil(BLOCK_COLUMNS);
    Some(linear("column_sum", blocks, BLOCK_COLUMNS * LANES))
}

/// `out[c] (+)= Σ_r x[r, c]`; zero without rows.
///
/// Deterministic: sixteen threads sum every sixteenth row each. Their sums are added in order, and
/// then the previous value.
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
    // The kernel counts rows in steps of the lanes, which must not wrap around.
    let rows = check.at_most("rows", rows, (u32::MAX - LANES) as usize)?;
    let columns = check.at_most("columns", columns, (u32::MAX - BLOCK_COLUMNS) as usize)?;
    let mut arguments = vec![Argument::read(x), Argument::output(out, accumulate)];
    arguments.extend([rows, columns, accumulate.into()].map(Argument::U32));
    Ok(Launch { kernel: &COLUMN_SUM, problem: Problem::Columns(columns), arguments })
}
