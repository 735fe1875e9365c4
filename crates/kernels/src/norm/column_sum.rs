//! The sum of each column: gradients of biases, and second stages.

use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, SmTarget, View};

/// Columns of one block.
const BLOCK_COLUMNS: u32 = 32;
/// Threads that share one column.
const LANES: u32 = 16;

/// The parameters of a column sum, whatever it is used for.
pub(crate) static PARAMETERS: &[Parameter] =
    &[pointer("x"), pointer("out"), u32("rows"), u32("columns"), u32("accumulate")];

/// The entry points of a column sum.
pub(crate) static ENTRIES: &[&str] = &["column_sum"];

/// Kernel of [`ColumnSum`].
pub static COLUMN_SUM: Kernel = Kernel {
    name: "column_sum",
    image: "column_sum",
    parameters: PARAMETERS,
    entries: ENTRIES,
    dispatch,
};

/// One block for each 32 columns.
pub(crate) fn dispatch(problem: &Problem, _: SmTarget) -> Dispatch {
    let blocks = problem.sizes[1].div_ceil(BLOCK_COLUMNS);
    linear("column_sum", blocks, BLOCK_COLUMNS * LANES)
}

/// `out[c] (+)= Σ_r x[r, c]`, in a fixed order: rows r, r + 16, … by one thread each, then the
/// sixteen sums in order, then what is there. Zero where there are no rows.
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
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(COLUMN_SUM.name);
        let elements = check.product("rows × columns", &[self.rows, self.columns])?;
        check.length("x", self.x, elements)?;
        check.length("out", self.out, self.columns)?;
        launch(check, (self.x, self.out), (self.rows, self.columns, self.accumulate))
    }
}

/// The launch of a column sum whose lengths were checked.
pub(crate) fn launch<B: Copy>(
    check: Check,
    (x, out): (View<B, f32>, View<B, f32>),
    (rows, columns, accumulate): (usize, usize, bool),
) -> Result<Launch<B>, KernelError> {
    // The kernel counts rows in steps of the lanes, and must not wrap around.
    let rows = check.at_most("rows", rows, (u32::MAX - LANES) as usize)?;
    let columns = check.at_most("columns", columns, (u32::MAX - BLOCK_COLUMNS) as usize)?;
    let out = if accumulate { Argument::update(out) } else { Argument::write(out) };
    let mut arguments = vec![Argument::read(x), out];
    arguments.extend([rows, columns, accumulate.into()].map(Argument::U32));
    Ok(Launch { kernel: &COLUMN_SUM, problem: Problem::from([rows, columns]), arguments })
}
