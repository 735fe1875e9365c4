//! Rows in another order, and back.

use retrograph_kernel_abi::loss as abi;

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, MAX_GRID_YZ, linear, row_threads};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Dispatch, Element, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`ReorderRows::gather`].
pub static GATHER_ROWS: Kernel = Kernel::new("gather_rows", &abi::GATHER_ROWS, |problem, _| {
    dispatch(abi::GATHER_ROWS.entry(), problem)
});

/// Kernel of [`ReorderRows::scatter`].
pub static SCATTER_ROWS: Kernel = Kernel::new("scatter_rows", &abi::SCATTER_ROWS, |problem, _| {
    dispatch(abi::SCATTER_ROWS.entry(), problem)
});

/// One block per row and group of vectors, 16 bytes per thread. The width is in words of 4 bytes.
fn dispatch(entry: &'static str, problem: &Problem) -> Option<Dispatch> {
    let RowsProblem { rows, width, .. } = problem.rows()?;
    let threads = row_threads(width);
    let groups = width.div_ceil(4).div_ceil(threads);
    Some(Dispatch { grid: [rows, groups, 1], ..linear(entry, rows, threads) })
}

/// The widest rows: the y extent of a grid times the bytes of a block.
const MAX_ROW_BYTES: usize = MAX_GRID_YZ * 4096;

/// Copies rows to another order ([`gather`](Self::gather)), or back ([`scatter`](Self::scatter)).
///
/// An index i whose `order[i]` is not below the number of rows is skipped: nothing is written for
/// it. Deterministic: one thread copies each element.
#[derive(Clone, Copy, Debug)]
pub struct ReorderRows<B, T: Element = f32> {
    /// `[rows, width]`, read.
    pub x: View<B, T>,
    /// `[rows]`, read: a permutation of the rows.
    pub order: View<B, u32>,
    /// `[1]`, read: the number of rows that are copied.
    pub row_limit: View<B, u32>,
    /// `[rows, width]`, written.
    pub out: View<B, T>,
    /// Elements of a row.
    pub width: usize,
}

impl<B: Copy, T: Element> ReorderRows<B, T> {
    /// Describes the launch of `out[i] = x[order[i]]` for i below the number in `row_limit`. Other
    /// rows of `out` are zeros.
    ///
    /// # Errors
    /// If a length does not match, elements do not have a multiple of two bytes, or there are too
    /// many.
    pub fn gather(self) -> Result<Launch<B>, KernelError> {
        self.launch(&GATHER_ROWS)
    }

    /// Describes the launch of `out[order[i]] = x[i]` for i below the number in `row_limit`. Other
    /// rows of `out` are zeros, and other rows of `x` are not read.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn scatter(self) -> Result<Launch<B>, KernelError> {
        self.launch(&SCATTER_ROWS)
    }

    fn launch(self, kernel: &'static Kernel) -> Result<Launch<B>, KernelError> {
        let Self { x, order, row_limit, out, width } = self;
        let check = Check(kernel.name);
        let elements = check.product("rows × width", &[order.len(), width])?;
        check.length("x", x, elements)?;
        check.length("out", out, elements)?;
        check.length("row_limit", row_limit, 1)?;
        let rows = check.at_most("rows", order.len(), MAX_GRID_X)?;
        let rule = "an element must have a multiple of two bytes";
        check.rule(size_of::<T>().is_multiple_of(2), rule, size_of::<T>())?;
        let bytes = check.product("bytes of a row", &[width, size_of::<T>()])?;
        let row_bytes = check.at_most("bytes of a row", bytes, MAX_ROW_BYTES)?;
        let parameters = abi::RowOrderParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x).any(),
            order: Pointer::read(order),
            row_limit: Pointer::read(row_limit),
            out: Pointer::write(out).any(),
            rows,
            row_bytes,
        };
        let (width, arguments) = (row_bytes.div_ceil(4), parameters.into_arguments());
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized: false });
        Ok(Launch { kernel, problem, arguments })
    }
}
