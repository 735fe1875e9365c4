//! Splits f32 matrices into two parts of f16. Their products have f32 accuracy.

use half::f16;
use retrograph_kernel_abi::gemm::{self as abi, SPLIT_PARTS};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Split`].
pub static SPLIT: Kernel = Kernel::new("split_f16", &abi::SPLIT, |problem, _| {
    let RowsProblem { rows, width, .. } = problem.rows()?;
    let (entry, threads) = entry(width);
    Some(linear(entry, rows, threads))
});

/// The entry for rows of this width, and its threads per row: as few elements per thread as keep a
/// row in registers.
fn entry(width: u32) -> (&'static str, u32) {
    let threads = |groups: u32| width.div_ceil(8 * groups).next_multiple_of(32).max(32);
    let fits = |(groups, _): &&(u32, &str)| threads(*groups) <= abi::SPLIT_MAX_THREADS;
    match abi::SPLIT_IN_REGISTERS.iter().find(fits) {
        Some(&(groups, entry)) => (entry, threads(groups)),
        None => (abi::SPLIT_ANY_WIDTH, abi::SPLIT_MAX_THREADS),
    }
}

/// A row-major matrix in two parts of f16: row i is `scales[i] · (parts[0][i] + parts[1][i])`.
///
/// A split takes as many bytes as f32, and loses at most 2⁻²³ of an element or 2⁻³⁹ of the largest
/// element of its row, whichever is more. Tensor cores multiply f16 at twice the rate of tf32.
///
/// Source: Ootomo and Yokota, arXiv 2203.03341.
#[derive(Clone, Copy, Debug)]
pub struct SplitMatrix<B> {
    /// `[2, rows, columns]`: the high parts, then the low ones.
    pub parts: View<B, f16>,
    /// `[rows]`: powers of two.
    pub scales: View<B, f32>,
}

impl<B: Copy> SplitMatrix<B> {
    /// Number of parts.
    pub const PARTS: usize = SPLIT_PARTS as usize;

    /// Number of elements of the matrix.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.parts.len() / Self::PARTS
    }

    /// Checks the lengths of parts and scales.
    pub(crate) fn check(
        &self,
        check: Check,
        [parts, scales]: [&'static str; 2],
        [rows, columns]: [usize; 2],
    ) -> Result<(), KernelError> {
        let elements = check.product("2 × rows × columns", &[Self::PARTS, rows, columns])?;
        check.length(parts, self.parts, elements)?;
        check.length(scales, self.scales, rows)
    }
}

/// Splits the rows of `x`, or of x with column j multiplied by `factors[j]`.
///
/// The gradient `dy·w` of an input contracts over the rows of w, so dy is split with the scales of
/// w as factors. An infinity or NaN becomes NaN, which reaches exactly the results that depend on
/// it. Elements below 2⁻¹¹² lose accuracy.
#[derive(Clone, Copy, Debug)]
pub struct Split<B> {
    /// `[rows, columns]`, read.
    pub x: View<B, f32>,
    /// `[columns]`, read: powers of two.
    pub factors: Option<View<B, f32>>,
    /// Both parts and scales, written.
    pub out: SplitMatrix<B>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row, a multiple of 8.
    pub columns: usize,
}

impl<B: Copy> Split<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, a row has no multiple of 8 elements, or x, factors or parts are
    /// not aligned to 16 bytes.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let (check, Self { x, factors, out, rows, columns }) = (Check(SPLIT.name), *self);
        check.length("x", x, check.product("rows × columns", &[rows, columns])?)?;
        factors.map_or(Ok(()), |factors| check.length("factors", factors, columns))?;
        out.check(check, ["the parts of out", "the scales of out"], [rows, columns])?;
        let rule = "rows of a split matrix must have a multiple of 8 elements";
        check.rule(columns.is_multiple_of(8), rule, (columns, 8))?;
        let aligned = [x.is_aligned(16), out.parts.is_aligned(16)];
        let aligned = aligned == [true; 2] && factors.is_none_or(|factors| factors.is_aligned(16));
        let rule = "x, factors and parts must start at multiples of 16 bytes";
        check.rule(aligned, rule, (x.byte_range().start, out.parts.byte_range().start))?;
        let rows = check.at_most("the number of rows", rows, MAX_GRID_X)?;
        let width = check.size("the number of columns", columns)?;
        let parameters = abi::SplitParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            factors: Pointer::read_optional(factors),
            parts: Pointer::write(out.parts),
            scales: Pointer::write(out.scales),
            rows,
            columns: width,
        };
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized: true });
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT, problem, arguments })
    }
}
