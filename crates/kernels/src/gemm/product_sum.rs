//! Sums of products of linear layers in one launch.
//!
//! ```text
//! y = x₀·w₀ᵀ + x₁·w₁ᵀ (+ bias)      dx = dy₀·w₀ + dy₁·w₁ + …
//! ```
//!
//! Further products accumulate onto the first one: the low-rank update of LoRA, or gradients
//! through other layers with the same input. The result is written once.

use half::bf16;
use retrograph_kernel_abi::gemm::MAX_ADDED_PRODUCTS;

use super::kernels::{DGRAD_KERNELS, FPROP_KERNELS};
use super::launch::{AddedProduct, Gemm};
use crate::checks::Check;
use crate::{DType, KernelError, Launch, TensorView, View};

/// `y = x₀·w₀ᵀ + x₁·w₁ᵀ (+ bias)`, in bf16.
///
/// Deterministic: each element accumulates the contraction of the first product in ascending order,
/// then the contraction of the second.
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
    /// Columns of x and w per product, multiples of 8.
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
        let (check, y) = (Check(FPROP_KERNELS.name()), y.into());
        for ((x, w), inputs) in x.into_iter().zip(w).zip(inputs) {
            check.length("x", x, check.product("rows × inputs", &[rows, inputs])?)?;
            check.length("w", w, check.product("outputs × inputs", &[outputs, inputs])?)?;
        }
        check.elements("y", y.len(), check.product("rows × outputs", &[rows, outputs])?)?;
        bias.map_or(Ok(()), |bias| check.length("bias", bias, outputs))?;
        let [k, second_k] = inputs;
        let (a, b) = ((x[1], second_k), (w[1], second_k));
        let added = AddedProduct { a, b, k: second_k, n: outputs };
        let operands = [(TensorView::Bf16(x[0]), k), (TensorView::Bf16(w[0]), k), (y, outputs)];
        let product = Gemm::contiguous(FPROP_KERNELS, DType::Bf16, operands, [rows, outputs, k]);
        Gemm { bias, ..product }.launch_with(&[Some(added)], Vec::new())
    }
}

/// The operands of a product `dy·w` of [`DgradSum`].
#[derive(Clone, Copy, Debug)]
pub struct DgradOperands<B> {
    /// dy, `[rows, outputs]`, read.
    pub grad_out: View<B, bf16>,
    /// `[outputs, inputs]`, read.
    pub w: View<B, bf16>,
    /// Columns of dy, a multiple of 8.
    pub outputs: usize,
}

/// `dx = dy₀·w₀ + dy₁·w₁ + …`, in bf16.
///
/// Deterministic: each element accumulates the contraction of the first product in ascending order,
/// then the contractions of the others in order.
#[derive(Clone, Copy, Debug)]
pub struct DgradSum<'a, B, X = View<B, f32>> {
    /// The first product, and up to [`DgradSum::MAX_ADDED`] products that are added to it.
    pub products: (DgradOperands<B>, &'a [DgradOperands<B>]),
    /// dx, `[rows, inputs]`, written: f32 or bf16.
    pub grad_input: X,
    /// Rows of dy and dx.
    pub rows: usize,
    /// Columns of dx, a multiple of 8.
    pub inputs: usize,
}

impl DgradSum<'_, ()> {
    /// The maximum number of products that are added to the first.
    pub const MAX_ADDED: usize = MAX_ADDED_PRODUCTS;
}

impl<B: Copy, X: Into<TensorView<B>>> DgradSum<'_, B, X> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, rows cannot be copied in vectors of 16 bytes, or there are more
    /// than [`DgradSum::MAX_ADDED`] added products.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { products: (first, added), grad_input, rows, inputs } = self;
        let (check, grad_input) = (Check(DGRAD_KERNELS.name()), grad_input.into());
        for DgradOperands { grad_out, w, outputs } in [&first].into_iter().chain(added) {
            let elements = check.product("rows × outputs", &[rows, *outputs])?;
            check.length("grad_out", *grad_out, elements)?;
            check.length("w", *w, check.product("outputs × inputs", &[*outputs, inputs])?)?;
        }
        let elements = check.product("rows × inputs", &[rows, inputs])?;
        check.elements("grad_input", grad_input.len(), elements)?;
        let added = added.iter().map(|&DgradOperands { grad_out, w, outputs: k }| {
            Some(AddedProduct { a: (grad_out, k), b: (w, inputs), k, n: inputs })
        });
        let [a, b] = [first.grad_out, first.w].map(TensorView::Bf16);
        let operands = [(a, first.outputs), (b, inputs), (grad_input, inputs)];
        let sizes = [rows, inputs, first.outputs];
        let product = Gemm::contiguous(DGRAD_KERNELS, DType::Bf16, operands, sizes);
        product.launch_with(&added.collect::<Vec<_>>(), Vec::new())
    }
}
