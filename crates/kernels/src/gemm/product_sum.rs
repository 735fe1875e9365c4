//! Sums of two products of a linear layer in one launch.
//!
//! ```text
//! y = x₀·w₀ᵀ + x₁·w₁ᵀ (+ bias)      dx = dy₀·w₀ + dy₁·w₁
//! ```
//!
//! The second product adds to the accumulators of the first: the low-rank update of LoRA, or the
//! gradient through another layer with the same input. The result is written once.

use half::bf16;

use super::kernels::{DGRAD_KERNELS, FPROP_KERNELS, GemmKernels};
use super::launch::{Gemm, SecondProduct};
use super::operand::{GemmSizes, Strides};
use crate::checks::Check;
use crate::{DType, KernelError, Launch, TensorView, View};

/// Two products of contiguous bf16 matrices with one result.
struct Sum<B> {
    kernels: GemmKernels,
    /// Both factors of the first product and the result, each with its number of columns, as
    /// stored.
    operands: [(TensorView<B>, usize); 3],
    sizes: [usize; 3],
    second: SecondProduct<B>,
}

impl<B: Copy> Sum<B> {
    fn launch(self, bias: Option<View<B, f32>>) -> Result<Launch<B>, KernelError> {
        let Self { kernels, operands, sizes, second } = self;
        let [a, b, c] = operands.map(|(view, columns)| (view, Strides::contiguous(columns)));
        let (compute, sizes) = (DType::Bf16, GemmSizes::single(sizes));
        let gemm = Gemm { kernels, compute, a, b, c, bias, sizes, alpha: 1.0, accumulate: false };
        gemm.launch_with(Some(second), Vec::new())
    }
}

/// `y = x₀·w₀ᵀ + x₁·w₁ᵀ (+ bias)`, in bf16.
///
/// Each element is one chain of sums: the contraction of the first product in ascending order, then
/// the contraction of the second.
#[derive(Clone, Copy, Debug)]
pub struct FpropSum<B, Y = View<B, f32>> {
    /// `[rows, inputs]` each, read.
    pub x: [View<B, bf16>; 2],
    /// `[outputs, inputs]` each, read.
    pub w: [View<B, bf16>; 2],
    /// `[outputs]`, added to every row.
    pub bias: Option<View<B, f32>>,
    /// `[rows, outputs]`, written: f32 or bf16.
    pub y: Y,
    /// Rows of x and y.
    pub rows: usize,
    /// Columns of x and w of each product, multiples of 8.
    pub inputs: [usize; 2],
    /// Columns of y.
    pub outputs: usize,
}

impl<B: Copy, Y: Into<TensorView<B>>> FpropSum<B, Y> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or rows cannot be copied in vectors of 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, rows, inputs, outputs } = self;
        let (check, kernels, y) = (Check(FPROP_KERNELS.name()), FPROP_KERNELS, y.into());
        for ((x, w), inputs) in x.into_iter().zip(w).zip(inputs) {
            check.length("x", x, check.product("rows × inputs", &[rows, inputs])?)?;
            check.length("w", w, check.product("outputs × inputs", &[outputs, inputs])?)?;
        }
        check.elements("y", y.len(), check.product("rows × outputs", &[rows, outputs])?)?;
        bias.map_or(Ok(()), |bias| check.length("bias", bias, outputs))?;
        let [k, second_k] = inputs;
        let second = SecondProduct { a: (x[1], second_k), b: (w[1], second_k), k: second_k };
        let operands = [(TensorView::Bf16(x[0]), k), (TensorView::Bf16(w[0]), k), (y, outputs)];
        Sum { kernels, operands, sizes: [rows, outputs, k], second }.launch(bias)
    }
}

/// `dx = dy₀·w₀ + dy₁·w₁`, in bf16.
///
/// Each element is one chain of sums: the contraction of the first product in ascending order, then
/// the contraction of the second.
#[derive(Clone, Copy, Debug)]
pub struct DgradSum<B, X = View<B, f32>> {
    /// dy, `[rows, outputs]` each, read.
    pub grad_out: [View<B, bf16>; 2],
    /// `[outputs, inputs]` each, read.
    pub w: [View<B, bf16>; 2],
    /// dx, `[rows, inputs]`, written: f32 or bf16.
    pub grad_input: X,
    /// Rows of dy and dx.
    pub rows: usize,
    /// Columns of dx, a multiple of 8.
    pub inputs: usize,
    /// Columns of dy of each product, multiples of 8.
    pub outputs: [usize; 2],
}

impl<B: Copy, X: Into<TensorView<B>>> DgradSum<B, X> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or rows cannot be copied in vectors of 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, w, grad_input, rows, inputs, outputs } = self;
        let (check, kernels) = (Check(DGRAD_KERNELS.name()), DGRAD_KERNELS);
        let grad_input = grad_input.into();
        for ((grad_out, w), outputs) in grad_out.into_iter().zip(w).zip(outputs) {
            let elements = check.product("rows × outputs", &[rows, outputs])?;
            check.length("grad_out", grad_out, elements)?;
            check.length("w", w, check.product("outputs × inputs", &[outputs, inputs])?)?;
        }
        let elements = check.product("rows × inputs", &[rows, inputs])?;
        check.elements("grad_input", grad_input.len(), elements)?;
        let [k, second_k] = outputs;
        let second = SecondProduct { a: (grad_out[1], second_k), b: (w[1], inputs), k: second_k };
        let [a, b] = [TensorView::Bf16(grad_out[0]), TensorView::Bf16(w[0])];
        let operands = [(a, k), (b, inputs), (grad_input, inputs)];
        Sum { kernels, operands, sizes: [rows, inputs, k], second }.launch(None)
    }
}
