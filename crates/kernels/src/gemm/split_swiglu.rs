//! SwiGLU and its gradients, fused with the split into f16 terms.

use retrograph_kernel_abi::gemm as abi;

use super::split::{self, SplitMatrix, SplitSizes};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, View};

/// Kernel of [`SplitSwiGlu`].
pub static SPLIT_SWIGLU: Kernel =
    Kernel::new("split_f16_swiglu", &abi::SPLIT_SWIGLU, |problem, _| {
        split::dispatch(&abi::SPLIT_SWIGLU_ENTRIES, problem)
    });

/// Kernel of [`SplitSwiGluBackward`].
pub static SPLIT_SWIGLU_BACKWARD: Kernel =
    Kernel::new("split_f16_swiglu_backward", &abi::SPLIT_SWIGLU_BACKWARD, |problem, _| {
        split::dispatch(&abi::SPLIT_SWIGLU_BACKWARD_ENTRIES, problem)
    });

/// Computes `silu(gate) · up` and splits its rows, with the bits of
/// [`Glu`](crate::elementwise::Glu) followed by [`Split`](super::Split).
#[derive(Clone, Copy, Debug)]
pub struct SplitSwiGlu<B> {
    /// `[rows, columns]`, read.
    pub gate: View<B, f32>,
    /// `[rows, columns]`, read.
    pub up: View<B, f32>,
    /// `[rows, columns]`, written: the unsplit `silu(gate) · up`.
    pub out: Option<View<B, f32>>,
    /// Two terms and scales, written.
    pub split: SplitMatrix<B>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row, a multiple of 8.
    pub columns: usize,
}

impl<B: Copy> SplitSwiGlu<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the row length is not a multiple of 8, `split` has one term, or
    /// a matrix is not aligned to 16 bytes.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { gate, up, out, split, .. } = *self;
        let sizes = SplitSizes::new(&SPLIT_SWIGLU, [self.rows, self.columns])?;
        sizes.require(&[("gate", Some(gate)), ("up", Some(up)), ("out", out)])?;
        sizes.require_terms(split, ["the terms of the product", "the scales of the product"])?;
        let (problem, [rows, columns]) = sizes.problem()?;
        let parameters = abi::SplitSwiGluParameters::<ArgumentTypes<B>> {
            gate: Pointer::read(gate),
            up: Pointer::read(up),
            out: Pointer::write_optional(out),
            terms: Pointer::write(split.terms),
            scales: Pointer::write(split.scales),
            rows,
            columns,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT_SWIGLU, problem, arguments })
    }
}

/// A gradient that [`SplitSwiGluBackward`] writes.
#[derive(Clone, Copy, Debug)]
pub struct SplitGradient<B> {
    /// `[columns]`, read: powers of two by which the columns are multiplied before the split.
    pub column_scales: Option<View<B, f32>>,
    /// `[rows, columns]`, written: the unsplit gradient, without column scales.
    pub out: Option<View<B, f32>>,
    /// Two terms and scales, written.
    pub split: SplitMatrix<B>,
}

/// Computes the gradients of gate and up and splits their rows, with the bits of
/// [`GluBackward`](crate::elementwise::GluBackward) followed by [`Split`](super::Split).
#[derive(Clone, Copy, Debug)]
pub struct SplitSwiGluBackward<B> {
    /// `[rows, columns]`, read.
    pub gate: View<B, f32>,
    /// `[rows, columns]`, read.
    pub up: View<B, f32>,
    /// `[rows, columns]`, read: the gradient of `silu(gate) · up`.
    pub grad_out: View<B, f32>,
    /// The gradient of gate.
    pub grad_gate: SplitGradient<B>,
    /// The gradient of up.
    pub grad_up: SplitGradient<B>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row, a multiple of 8.
    pub columns: usize,
}

impl<B: Copy> SplitSwiGluBackward<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// The errors of [`SplitSwiGlu::launch`].
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { gate, up, grad_out, grad_gate, grad_up, .. } = *self;
        let sizes = SplitSizes::new(&SPLIT_SWIGLU_BACKWARD, [self.rows, self.columns])?;
        sizes.require(&[
            ("gate", Some(gate)),
            ("up", Some(up)),
            ("grad_out", Some(grad_out)),
            ("grad_gate", grad_gate.out),
            ("grad_up", grad_up.out),
        ])?;
        sizes.require_columns("the column scales of grad_gate", grad_gate.column_scales)?;
        sizes.require_columns("the column scales of grad_up", grad_up.column_scales)?;
        let names = ["the terms of grad_gate", "the scales of grad_gate"];
        sizes.require_terms(grad_gate.split, names)?;
        let names = ["the terms of grad_up", "the scales of grad_up"];
        sizes.require_terms(grad_up.split, names)?;
        let (problem, [rows, columns]) = sizes.problem()?;
        let parameters = abi::SplitSwiGluBackwardParameters::<ArgumentTypes<B>> {
            gate: Pointer::read(gate),
            up: Pointer::read(up),
            grad_out: Pointer::read(grad_out),
            gate_column_scales: Pointer::read_optional(grad_gate.column_scales),
            up_column_scales: Pointer::read_optional(grad_up.column_scales),
            grad_gate: Pointer::write_optional(grad_gate.out),
            grad_up: Pointer::write_optional(grad_up.out),
            gate_terms: Pointer::write(grad_gate.split.terms),
            up_terms: Pointer::write(grad_up.split.terms),
            gate_scales: Pointer::write(grad_gate.split.scales),
            up_scales: Pointer::write(grad_up.split.scales),
            rows,
            columns,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT_SWIGLU_BACKWARD, problem, arguments })
    }
}
