//! The backward pass of RMSNorm, with a two-stage reduction of the gradient of gamma.

use retrograph_kernel_abi::norm as abi;

use super::column_sum::{self, ColumnSum};
use super::rms_norm::{entry, is_vectorized, row_sizes, threads};
use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::tensor::OutputPointers;
use crate::{Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`RmsNormBackward`].
pub static RMS_NORM_BACKWARD: Kernel =
    Kernel::new("rms_norm_backward", &abi::RMS_NORM_BACKWARD, |problem, _| {
        let RowsProblem { rows: blocks, width, vectorized } = problem.rows()?;
        let in_registers = abi::RMS_NORM_BACKWARD_IN_REGISTERS;
        let entry = entry(width, vectorized, in_registers);
        let entry = entry.unwrap_or(abi::RMS_NORM_BACKWARD_ANY_WIDTH);
        Some(linear(entry, blocks, threads(width)))
    });

/// Kernel of [`RmsNormGammaReduce`].
pub static RMS_NORM_GAMMA_REDUCE: Kernel =
    Kernel::new("rms_norm_gamma_reduce", &abi::COLUMN_SUM, column_sum::dispatch);

/// Gradients of [`RmsNorm`](crate::norm::RmsNorm): with `h = x · rstd` and `u = gamma ⊙ grad_out`,
/// `grad_input = rstd · (u − h · mean(u ⊙ h))`, and partial sums of `grad_gamma = Σ grad_out ⊙ h`.
///
/// Row p of `gamma_partials` is the sum over the consecutive rows of block p;
/// [`RmsNormGammaReduce`] adds these rows. Deterministic: both stages add in a fixed order.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackward<'a, B, O = View<B, f32>> {
    /// `[rows, width]`, read: the input of the forward pass.
    pub x: View<B, f32>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows]`, read: `rstd` of the forward pass.
    pub rstd: View<B, f32>,
    /// `[rows, width]` each, read: one to three gradients of y, each f32 or bf16, added in this
    /// order.
    pub grad_out: &'a [TensorView<B>],
    /// `[rows, width]`, written: f32, bf16, or both. If `accumulate` is set, the f32 view is added
    /// to, and the bf16 view is overwritten with the sum.
    pub grad_input: O,
    /// `[partial_rows(rows), width]`, written; `None` if gamma is frozen.
    pub gamma_partials: Option<View<B, f32>>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Whether the gradient is added to `grad_input` instead of overwriting it.
    pub accumulate: bool,
}

impl<B: Copy> RmsNormBackward<'_, B> {
    /// Returns the number of rows of `gamma_partials` for an input of `rows` rows.
    pub fn partial_rows(rows: usize) -> usize {
        rows.div_ceil(rows_per_block(rows))
    }
}

impl<B: Copy, O: Into<Output<B>> + Copy> RmsNormBackward<'_, B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, a size exceeds the limit of the kernel, or there are no
    /// gradients or more than three.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM_BACKWARD.name);
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let elements = check.product("rows × width", &[self.rows, self.width])?;
        check.length("x", self.x, elements)?;
        check.length("gamma", self.gamma, self.width)?;
        check.length("rstd", self.rstd, self.rows)?;
        let given = self.grad_out.len();
        let rule = "grad_out must have one to three gradients";
        check.rule((1..=3).contains(&given), rule, given)?;
        for grad_out in self.grad_out {
            check.elements("grad_out", grad_out.len(), elements)?;
        }
        let blocks = RmsNormBackward::<B>::partial_rows(self.rows);
        if let Some(partials) = self.gamma_partials {
            check.length("gamma_partials", partials, blocks * self.width)?;
        }
        let (grad_input, grad_input_bf16) = self.grad_input(check, elements)?;
        let gradient = |at: usize| match self.grad_out.get(at) {
            Some(gradient) => gradient.f32_or_bf16(check),
            None => Ok((Pointer::null(), Pointer::null())),
        };
        let (grad_out, grad_out_bf16) = gradient(0)?;
        let (grad_out_2, grad_out_2_bf16) = gradient(1)?;
        let (grad_out_3, grad_out_3_bf16) = gradient(2)?;
        let parameters = abi::RmsNormBackwardParameters::<ArgumentTypes<B>> {
            x: Pointer::read(self.x),
            gamma: Pointer::read(self.gamma),
            rstd: Pointer::read(self.rstd),
            grad_out,
            grad_out_bf16,
            grad_out_2,
            grad_out_2_bf16,
            grad_out_3,
            grad_out_3_bf16,
            grad_input,
            grad_input_bf16,
            gamma_partials: Pointer::write_optional(self.gamma_partials),
            rows,
            width,
            rows_per_block: check.size("rows per block", rows_per_block(self.rows))?,
            accumulate: self.accumulate,
        };
        let arguments = parameters.into_arguments();
        let vectorized = is_vectorized(width, &arguments);
        // There are at most as many blocks as rows, so the conversion is exact.
        let problem = Problem::Rows(RowsProblem { rows: blocks as u32, width, vectorized });
        Ok(Launch { kernel: &RMS_NORM_BACKWARD, problem, arguments })
    }

    /// The pointers to the gradient of the input in f32 and in bf16.
    fn grad_input(&self, check: Check, elements: usize) -> Result<OutputPointers<B>, KernelError> {
        let output: Output<B> = self.grad_input.into();
        output.check(check, "grad_input", elements)?;
        let (in_f32, in_bf16) = output.pointers();
        if !self.accumulate {
            return Ok((in_f32, in_bf16));
        }
        let rule = "an accumulated gradient must be f32, with an optional second output in bf16";
        Ok((Pointer::update(output.require_f32(check, rule)?), in_bf16))
    }
}

/// `grad_gamma = Σ_p partials[p]`: the second stage of the gradient of gamma.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormGammaReduce<B> {
    /// `[partial_rows, width]`, read.
    pub partials: View<B, f32>,
    /// `[width]`, written.
    pub grad_gamma: View<B, f32>,
    /// [`RmsNormBackward::partial_rows`] of the number of rows.
    pub partial_rows: usize,
    /// Elements in a row.
    pub width: usize,
}

impl<B: Copy> RmsNormGammaReduce<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or a size exceeds the limit of the kernel.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(RMS_NORM_GAMMA_REDUCE.name);
        let elements = check.product("partial rows × width", &[self.partial_rows, self.width])?;
        check.length("partials", self.partials, elements)?;
        check.length("grad_gamma", self.grad_gamma, self.width)?;
        let (x, out, rows) = (self.partials, self.grad_gamma, self.partial_rows);
        let sum = ColumnSum { x, out, rows, columns: self.width, accumulate: false };
        let launch = column_sum::launch(check, sum)?;
        Ok(Launch { kernel: &RMS_NORM_GAMMA_REDUCE, ..launch })
    }
}

/// Rows per block of the backward kernel: as few as keep the grid at 256 blocks or less.
pub(super) fn rows_per_block(rows: usize) -> usize {
    rows.div_ceil(256).max(1)
}
