//! RMSNorm with an optional residual add, and the geometry that it shares with its backward pass.
//!
//! Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::params::{f32, pointer, u32};
use crate::problem::RowsProblem;
use crate::{Argument, Kernel, KernelError, Launch, Output, Problem, View};

/// The most threads per block.
const MAX_THREADS: u32 = 512;

/// Kernel of [`RmsNorm`].
pub static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    image: "rms_norm",
    parameters: &[
        pointer("x"),
        pointer("addend"),
        pointer("sum"),
        pointer("gamma"),
        pointer("y"),
        pointer("y_bf16"),
        pointer("rstd"),
        u32("width"),
        f32("eps"),
    ],
    entries: &["rms_norm", "rms_norm_1", "rms_norm_2", "rms_norm_4"],
    dispatch: |problem, _| {
        let RowsProblem { rows, width, vectorized } = problem.rows()?;
        let entry = match vectors_per_thread(width) {
            Some(1) if vectorized => "rms_norm_1",
            Some(2) if vectorized => "rms_norm_2",
            Some(4) if vectorized => "rms_norm_4",
            _ => "rms_norm",
        };
        Some(linear(entry, rows, threads(width)))
    },
};

/// `y = x · rstd · gamma` with `rstd = rsqrt(mean(x²) + eps)` for each row.
///
/// Accurate for |x| from 1e-30 to 1e30: if the sum of squares leaves the range of f32, the row is
/// summed again, scaled by a power of two. NaN spreads over its row; an infinity gives NaN in its
/// own element and 0 in the others.
///
/// With a residual, the norm is that of the sum.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<B, O = View<B, f32>> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// A residual that is added to x first.
    pub residual: Option<ResidualAdd<B>>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows, width]`, written: f32, bf16, or both.
    pub y: O,
    /// `[rows]`, written: `rsqrt(mean(x²) + eps)`, which the backward pass reads.
    pub rstd: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Added to the mean square; finite and not negative.
    pub eps: f32,
}

/// The residual that [`RmsNorm`] adds to its input.
#[derive(Clone, Copy, Debug)]
pub struct ResidualAdd<B> {
    /// `[rows, width]`, read.
    pub residual: View<B, f32>,
    /// `[rows, width]`, written: x + residual, the x of the backward pass.
    pub sum: View<B, f32>,
}

impl<B: Copy, O: Into<Output<B>> + Copy> RmsNorm<B, O> {
    /// Checks the operands and describes the launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM.name);
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let elements = check.product("rows × width", &[self.rows, self.width])?;
        check.length("x", self.x, elements)?;
        check.length("gamma", self.gamma, self.width)?;
        let y: Output<B> = self.y.into();
        y.check(check, "y", elements)?;
        check.length("rstd", self.rstd, self.rows)?;
        let holds = self.eps.is_finite() && self.eps >= 0.0;
        check.constant("eps", self.eps, (holds, "finite and not negative"))?;
        if let Some(ResidualAdd { residual, sum }) = self.residual {
            check.length("residual", residual, elements)?;
            check.length("sum", sum, elements)?;
        }
        let [y, y_bf16] = y.arguments();
        let arguments = vec![
            Argument::read(self.x),
            Argument::read_optional(self.residual.map(|add| add.residual)),
            self.residual.map_or(Argument::Null, |add| Argument::write(add.sum)),
            Argument::read(self.gamma),
            y,
            y_bf16,
            Argument::write(self.rstd),
            Argument::U32(width),
            Argument::f32(self.eps),
        ];
        let vectorized = is_vectorized(width, &arguments);
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized });
        Ok(Launch { kernel: &RMS_NORM, problem, arguments })
    }
}

/// Vectors of four elements that a thread keeps in registers; `None` if a row has too many.
pub(super) fn vectors_per_thread(width: u32) -> Option<u32> {
    [1, 2, 4].into_iter().find(|vectors| width <= 4 * vectors * MAX_THREADS)
}

/// Threads for a row of `width` elements, in whole warps. They do not depend on alignment, so that
/// the bits do not either.
pub(super) fn threads(width: u32) -> u32 {
    let vectors = vectors_per_thread(width);
    let threads = vectors.map_or(MAX_THREADS, |vectors| width.div_ceil(4 * vectors));
    threads.next_multiple_of(32).max(32)
}

/// Whether every row of every operand starts at a multiple of 16 bytes.
pub(super) fn is_vectorized<B: Copy>(width: u32, arguments: &[Argument<B>]) -> bool {
    let mut buffers = arguments.iter().flat_map(Argument::buffers);
    width.is_multiple_of(4) && buffers.all(|it| it.bytes.start.is_multiple_of(16))
}

/// Rows and width as kernel parameters. A row has at most one block.
pub(super) fn row_sizes(
    check: Check,
    rows: usize,
    width: usize,
) -> Result<(u32, u32), KernelError> {
    Ok((check.at_most("rows", rows, MAX_GRID_X)?, check.size("width", width)?))
}
