//! RMSNorm and its backward pass, fused with the split into f16 terms.

use retrograph_kernel_abi::norm as abi;

use super::rms_norm::{ResidualAdd, entry, row_sizes, threads};
use super::rms_norm_backward::rows_per_block;
use crate::gemm::{SplitMatrix, SplitSizes};
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::RowsProblem;
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`SplitRmsNorm`].
pub static SPLIT_RMS_NORM: Kernel =
    Kernel::new("split_f16_rms_norm", &abi::SPLIT_RMS_NORM, |problem, _| {
        let in_registers = abi::SPLIT_RMS_NORM_IN_REGISTERS;
        dispatch(problem, in_registers, abi::SPLIT_RMS_NORM_ANY_WIDTH)
    });

/// Kernel of [`SplitRmsNormBackward`].
pub static SPLIT_RMS_NORM_BACKWARD: Kernel =
    Kernel::new("split_f16_rms_norm_backward", &abi::SPLIT_RMS_NORM_BACKWARD, |problem, _| {
        let in_registers = abi::SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS;
        dispatch(problem, in_registers, abi::SPLIT_RMS_NORM_BACKWARD_ANY_WIDTH)
    });

/// The entry and the block that the kernels without a split have, so that sums have the same order.
fn dispatch(
    problem: &Problem,
    in_registers: &[(u32, &'static str)],
    any_width: &'static str,
) -> Option<Dispatch> {
    let RowsProblem { rows: blocks, width, vectorized } = problem.rows()?;
    let entry = entry(width, vectorized, in_registers).unwrap_or(any_width);
    Some(linear(entry, blocks, threads(width)))
}

/// Computes RMSNorm and splits its rows, with the bits of [`RmsNorm`](super::RmsNorm) followed by
/// [`Split`](crate::gemm::Split).
#[derive(Clone, Copy, Debug)]
pub struct SplitRmsNorm<B> {
    /// `[rows, width]`, read.
    pub x: View<B, f32>,
    /// The residual, in f32, that is added to x before the norm.
    pub residual: Option<ResidualAdd<B>>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows, width]`, written: the unsplit result.
    pub y: Option<View<B, f32>>,
    /// Two terms and scales, written.
    pub split: SplitMatrix<B>,
    /// `[rows]`, written: `rsqrt(mean(x²) + eps)`, which the backward pass reads.
    pub rstd: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row, a multiple of 8.
    pub width: usize,
    /// Added to the mean of squares; finite and not negative.
    pub eps: f32,
}

impl<B: Copy> SplitRmsNorm<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the width is not a multiple of 8, `split` has one term, a matrix
    /// is not aligned to 16 bytes, or `eps` is negative or not finite.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, residual, gamma, y, split, rstd, eps, .. } = *self;
        let sizes = SplitSizes::new(&SPLIT_RMS_NORM, [self.rows, self.width])?;
        let sum = residual.map(|add| add.sum);
        let residual = residual.map(|add| add.residual.require_f32(sizes.check)).transpose()?;
        sizes.require(&[("x", Some(x)), ("residual", residual), ("sum", sum), ("y", y)])?;
        sizes.require_columns("gamma", Some(gamma))?;
        sizes.require_terms(split, ["the terms of y", "the scales of y"])?;
        let check = sizes.check;
        check.length("rstd", rstd, self.rows)?;
        check.not_negative("eps", eps)?;
        let (problem, [rows, width]) = sizes.problem()?;
        let parameters = abi::SplitRmsNormParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            residual: Pointer::read_optional(residual),
            sum: Pointer::write_optional(sum),
            gamma: Pointer::read(gamma),
            y: Pointer::write_optional(y),
            terms: Pointer::write(split.terms),
            scales: Pointer::write(split.scales),
            rstd: Pointer::write(rstd),
            rows,
            width,
            eps,
        };
        Ok(Launch { kernel: &SPLIT_RMS_NORM, problem, arguments: parameters.into_arguments() })
    }
}

/// Computes the gradients of RMSNorm and splits the rows of `grad_input`, with the bits of
/// [`RmsNormBackward`](super::RmsNormBackward) followed by [`Split`](crate::gemm::Split).
#[derive(Clone, Copy, Debug)]
pub struct SplitRmsNormBackward<'a, B> {
    /// `[rows, width]`, read: the input of the forward pass.
    pub x: View<B, f32>,
    /// `[width]`, read.
    pub gamma: View<B, f32>,
    /// `[rows]`, read: `rstd` of the forward pass.
    pub rstd: View<B, f32>,
    /// `[rows, width]` each, read: one to three gradients of y, added in this order.
    pub grad_out: &'a [View<B, f32>],
    /// `[rows, width]`, written, or added to if `accumulate` is set: the unsplit gradient, without
    /// column scales.
    pub grad_input: View<B, f32>,
    /// `[width]`, read: powers of two by which the columns are multiplied before the split.
    pub column_scales: Option<View<B, f32>>,
    /// Two terms and scales, written.
    pub split: SplitMatrix<B>,
    /// `[partial_rows(rows), width]`, written; `None` if gamma is frozen.
    pub gamma_partials: Option<View<B, f32>>,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row, a multiple of 8.
    pub width: usize,
    /// Whether the gradient is added to `grad_input` instead of overwriting it.
    pub accumulate: bool,
}

impl<B: Copy> SplitRmsNormBackward<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the width is not a multiple of 8, `split` has one term, a matrix
    /// is not aligned to 16 bytes, or there are no gradients or more than three.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, gamma, rstd, grad_out, grad_input, column_scales, split, .. } = *self;
        let sizes = SplitSizes::new(&SPLIT_RMS_NORM_BACKWARD, [self.rows, self.width])?;
        sizes.require(&[("x", Some(x)), ("grad_input", Some(grad_input))])?;
        sizes.require_columns("gamma", Some(gamma))?;
        sizes.require_columns("column_scales", column_scales)?;
        sizes.require_terms(split, ["the terms of grad_input", "the scales of grad_input"])?;
        let check = sizes.check;
        check.length("rstd", rstd, self.rows)?;
        let rule = "grad_out must have one to three gradients";
        check.rule((1..=3).contains(&grad_out.len()), rule, grad_out.len())?;
        let gradient = |at: usize| grad_out.get(at).copied();
        sizes.require(&[0, 1, 2].map(|at| ("grad_out", gradient(at))))?;
        let rows_per_block = rows_per_block(self.rows);
        let blocks = self.rows.div_ceil(rows_per_block);
        if let Some(partials) = self.gamma_partials {
            check.length("gamma_partials", partials, blocks * self.width)?;
            sizes.require_aligned(partials)?;
        }
        let (rows, width) = row_sizes(check, self.rows, self.width)?;
        let parameters = abi::SplitRmsNormBackwardParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            gamma: Pointer::read(gamma),
            rstd: Pointer::read(rstd),
            grad_out: Pointer::read_optional(gradient(0)),
            grad_out_2: Pointer::read_optional(gradient(1)),
            grad_out_3: Pointer::read_optional(gradient(2)),
            grad_input: match self.accumulate {
                true => Pointer::update(grad_input),
                false => Pointer::write(grad_input),
            },
            column_scales: Pointer::read_optional(column_scales),
            terms: Pointer::write(split.terms),
            scales: Pointer::write(split.scales),
            gamma_partials: Pointer::write_optional(self.gamma_partials),
            rows,
            width,
            rows_per_block: check.size("rows per block", rows_per_block)?,
            accumulate: self.accumulate,
        };
        // There are at most as many blocks as rows, so the conversion is exact.
        let problem = RowsProblem { rows: blocks as u32, width, vectorized: true };
        let (problem, arguments) = (Problem::Rows(problem), parameters.into_arguments());
        Ok(Launch { kernel: &SPLIT_RMS_NORM_BACKWARD, problem, arguments })
    }
}
