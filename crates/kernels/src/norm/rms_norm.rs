//! RMSNorm with an optional residual add, and the geometry that it shares with its backward pass.
//!
//! Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

use retrograph_kernel_abi::norm::{self as abi, MAX_THREADS};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Argument, Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`RmsNorm`].
pub static RMS_NORM: Kernel = Kernel::new("rms_norm", &abi::RMS_NORM, |problem, _| {
    let RowsProblem { rows, width, vectorized } = problem.rows()?;
    let in_registers = abi::RMS_NORM_IN_REGISTERS;
    let entry = entry(width, vectorized, in_registers).unwrap_or(abi::RMS_NORM_ANY_WIDTH);
    Some(linear(entry, rows, threads(width)))
});

/// `y = x · rstd · gamma` with `rstd = rsqrt(mean(x²) + eps)` for each row.
///
/// Accurate for |x| from 1e-30 to 1e30: if the sum of squares leaves the range of f32, it is
/// computed again with x scaled by a power of two. A NaN makes its row NaN; an infinity makes its
/// own element NaN and the others 0.
///
/// With a residual, x in this formula is the sum of `x` and the residual.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<B, O = View<B, f32>> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// The residual that is added to x before the norm.
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
    /// Added to the mean of squares; finite and not negative.
    pub eps: f32,
}

/// The residual that [`RmsNorm`] adds to its input.
#[derive(Clone, Copy, Debug)]
pub struct ResidualAdd<B> {
    /// `[rows, width]`, read: f32 or bf16.
    pub residual: TensorView<B>,
    /// `[rows, width]`, written: x + residual, which is the x of the backward pass.
    pub sum: View<B, f32>,
}

impl<B: Copy, O: Into<Output<B>> + Copy> RmsNorm<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, a size exceeds the limit of the kernel, or `eps` is negative or
    /// not finite.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM.name);
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let elements = check.product("rows × width", &[self.rows, self.width])?;
        check.length("x", self.x, elements)?;
        check.length("gamma", self.gamma, self.width)?;
        let y: Output<B> = self.y.into();
        y.check(check, "y", elements)?;
        check.length("rstd", self.rstd, self.rows)?;
        check.not_negative("eps", self.eps)?;
        if let Some(ResidualAdd { residual, sum }) = self.residual {
            check.elements("residual", residual.len(), elements)?;
            check.length("sum", sum, elements)?;
        }
        let (y, y_bf16) = y.pointers();
        let residual = self.residual.map(|add| add.residual.f32_or_bf16(check)).transpose()?;
        let (residual, residual_bf16) = residual.unwrap_or((Pointer::null(), Pointer::null()));
        let parameters = abi::RmsNormParameters::<ArgumentTypes<B>> {
            x: Pointer::read(self.x),
            residual,
            residual_bf16,
            sum: Pointer::write_optional(self.residual.map(|add| add.sum)),
            gamma: Pointer::read(self.gamma),
            y,
            y_bf16,
            rstd: Pointer::write(self.rstd),
            width,
            eps: self.eps,
        };
        let arguments = parameters.into_arguments();
        let vectorized = is_vectorized(width, &arguments);
        let problem = Problem::Rows(RowsProblem { rows, width, vectorized });
        Ok(Launch { kernel: &RMS_NORM, problem, arguments })
    }
}

/// Vec4s that each thread keeps in registers; `None` if the row is too wide.
fn vec4s_per_thread(width: u32) -> Option<u32> {
    let mut choices = abi::RMS_NORM_IN_REGISTERS.iter().map(|(vec4s, _)| *vec4s);
    choices.find(|vec4s| width <= 4 * vec4s * MAX_THREADS)
}

/// The entry of `in_registers` for rows of `width` elements; `None` if there is none.
pub(super) fn entry(
    width: u32,
    vectorized: bool,
    in_registers: &[(u32, &'static str)],
) -> Option<&'static str> {
    let wanted = vec4s_per_thread(width).filter(|_| vectorized)?;
    in_registers.iter().find(|(vec4s, _)| *vec4s == wanted).map(|(_, entry)| *entry)
}

/// The block size for a row of `width` elements, in whole warps. It does not depend on alignment,
/// so the bits of the result do not either.
pub(super) fn threads(width: u32) -> u32 {
    let threads = vec4s_per_thread(width).map_or(MAX_THREADS, |vec4s| width.div_ceil(4 * vec4s));
    threads.next_multiple_of(32).max(32)
}

/// Whether every row of every operand starts at a multiple of 16 bytes.
pub(super) fn is_vectorized<B: Copy>(width: u32, arguments: &[Argument<B>]) -> bool {
    let mut buffers = arguments.iter().flat_map(Argument::buffers);
    width.is_multiple_of(4) && buffers.all(|it| it.bytes.start.is_multiple_of(16))
}

/// Rows and width as kernel parameters. The grid has at most one block per row.
pub(super) fn row_sizes(
    check: Check,
    rows: usize,
    width: usize,
) -> Result<(u32, u32), KernelError> {
    Ok((check.at_most("rows", rows, MAX_GRID_X)?, check.size("width", width)?))
}
