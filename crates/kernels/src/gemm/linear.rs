//! The products of a linear layer: `y = x·wᵀ` and its two gradients.
//!
//! Weights are `[outputs, inputs]`, as in checkpoints.

use retrograph_kernel_abi::gemm as abi;

use super::kernels::{DGRAD_KERNELS, FPROP_KERNELS, WGRAD_KERNELS};
use super::launch::Gemm;
use crate::checks::Check;
use crate::tensor::NF4_BLOCK;
use crate::{DType, KernelError, Launch, TensorView, View};

/// The sizes of a linear layer. Each matrix has fewer than 2³² elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of x and y: the tokens.
    pub rows: usize,
    /// Columns of x and of w.
    pub inputs: usize,
    /// Rows of w, columns of y.
    pub outputs: usize,
}

/// Minimum rows for which bf16 activations are faster. Every tile computes 9 to 15 rows as 16.
const MIN_MULTISTAGE_ROWS: usize = abi::SKINNY_MAX_ROWS as usize + 1;

impl GemmShape {
    /// Whether bf16 products with weights of type `weights` are faster with x and dy in bf16, which
    /// multistage kernels need. True if the weights are bf16 or NF4, there are at least nine rows,
    /// and the row lengths allow copies of 16 bytes.
    pub fn prefers_bf16_activations(self, weights: DType) -> bool {
        let Self { rows, inputs, outputs } = self;
        let unit = match weights {
            DType::Bf16 => 8,
            DType::Nf4 => NF4_BLOCK,
            _ => return false,
        };
        rows >= MIN_MULTISTAGE_ROWS && inputs % unit == 0 && outputs % 8 == 0
    }

    /// Checks the lengths of x, w and y (or of their gradients), named by the fields of the caller.
    pub(super) fn check<B: Copy>(
        self,
        check: Check,
        [x, w, y]: [(&'static str, TensorView<B>); 3],
    ) -> Result<(), KernelError> {
        let Self { rows, inputs, outputs } = self;
        check.elements(x.0, x.1.len(), check.product("rows × inputs", &[rows, inputs])?)?;
        check.elements(w.0, w.1.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        check.elements(y.0, y.1.len(), check.product("rows × outputs", &[rows, outputs])?)
    }
}

/// `y = α·x·wᵀ (+ bias) (+ y)`.
#[derive(Clone, Copy, Debug)]
pub struct Fprop<B, W = View<B, f32>, X = View<B, f32>, Y = View<B, f32>> {
    /// `[rows, inputs]`: f32, bf16 if w is bf16 or NF4, or split if w is split.
    pub x: X,
    /// `[outputs, inputs]`: f32, bf16, NF4 or split.
    pub w: W,
    /// `[outputs]`, added to every row after scaling.
    pub bias: Option<View<B, f32>>,
    /// `[rows, outputs]`, must not alias x, w or bias: f32, or bf16 if x is bf16 and `accumulate`
    /// is not set.
    pub y: Y,
    /// The sizes.
    pub shape: GemmShape,
    /// The scale α.
    pub alpha: f32,
    /// Whether the product is added to y instead of overwriting it.
    pub accumulate: bool,
}

impl<B, W, X, Y> Fprop<B, W, X, Y>
where
    B: Copy,
    W: Into<TensorView<B>>,
    X: Into<TensorView<B>>,
    Y: Into<TensorView<B>>,
{
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Fprop::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, or no kernel supports the combination of types.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, shape, alpha, accumulate } = self;
        let (check, x, w, y) = (Check(FPROP_KERNELS.name()), x.into(), w.into(), y.into());
        shape.check(check, [("x", x), ("w", w), ("y", y)])?;
        if let Some(bias) = bias {
            check.length("bias", bias, shape.outputs)?;
        }
        let GemmShape { rows, inputs, outputs } = shape;
        let operands = [(x, inputs), (w, inputs), (y, outputs)];
        let product = Gemm::contiguous(FPROP_KERNELS, compute, operands, [rows, outputs, inputs]);
        Gemm { bias, alpha, accumulate, ..product }.launch()
    }
}

/// `dx = α·dy·w (+ dx)`.
#[derive(Clone, Copy, Debug)]
pub struct Dgrad<Y, W, X> {
    /// dy, `[rows, outputs]`: f32, bf16 if w is bf16 or NF4, or, if w is split, split with the
    /// scales of w as column scales.
    pub grad_out: Y,
    /// `[outputs, inputs]`: f32, bf16, NF4 or split.
    pub w: W,
    /// dx, `[rows, inputs]`, must not alias grad_out or w: f32, or bf16 if dy is bf16 and
    /// `accumulate` is not set.
    pub grad_input: X,
    /// The sizes.
    pub shape: GemmShape,
    /// The scale α.
    pub alpha: f32,
    /// Whether the product is added to dx instead of overwriting it.
    pub accumulate: bool,
}

impl<Y, W, X> Dgrad<Y, W, X> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Dgrad::launch_in`].
    pub fn launch<B: Copy>(self) -> Result<Launch<B>, KernelError>
    where
        Y: Into<TensorView<B>>,
        W: Into<TensorView<B>>,
        X: Into<TensorView<B>>,
    {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, or no kernel supports the combination of types.
    pub fn launch_in<B: Copy>(self, compute: DType) -> Result<Launch<B>, KernelError>
    where
        Y: Into<TensorView<B>>,
        W: Into<TensorView<B>>,
        X: Into<TensorView<B>>,
    {
        let Self { grad_out, w, grad_input, shape, alpha, accumulate } = self;
        let (grad_out, w, grad_input) = (grad_out.into(), w.into(), grad_input.into());
        let named = [("grad_input", grad_input), ("w", w), ("grad_out", grad_out)];
        shape.check(Check(DGRAD_KERNELS.name()), named)?;
        let GemmShape { rows, inputs, outputs } = shape;
        let operands = [(grad_out, outputs), (w, inputs), (grad_input, inputs)];
        let product = Gemm::contiguous(DGRAD_KERNELS, compute, operands, [rows, inputs, outputs]);
        Gemm { alpha, accumulate, ..product }.launch()
    }
}

/// `dw = α·dyᵀ·x (+ dw)`.
#[derive(Clone, Copy, Debug)]
pub struct Wgrad<Y, X, W> {
    /// dy, `[rows, outputs]`: f32 or bf16, the same as x.
    pub grad_out: Y,
    /// `[rows, inputs]`: f32 or bf16, the same as dy.
    pub x: X,
    /// dw, `[outputs, inputs]`, must not alias grad_out or x: f32, or bf16 if dy and x are bf16 and
    /// `accumulate` is not set.
    pub grad_weight: W,
    /// The sizes.
    pub shape: GemmShape,
    /// The scale α.
    pub alpha: f32,
    /// Whether the product is added to dw instead of overwriting it.
    pub accumulate: bool,
}

impl<Y, X, W> Wgrad<Y, X, W> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`Wgrad::launch_in`].
    pub fn launch<B: Copy>(self) -> Result<Launch<B>, KernelError>
    where
        Y: Into<TensorView<B>>,
        X: Into<TensorView<B>>,
        W: Into<TensorView<B>>,
    {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, or no kernel supports the combination of types.
    pub fn launch_in<B: Copy>(self, compute: DType) -> Result<Launch<B>, KernelError>
    where
        Y: Into<TensorView<B>>,
        X: Into<TensorView<B>>,
        W: Into<TensorView<B>>,
    {
        let Self { grad_out, x, grad_weight, shape, alpha, accumulate } = self;
        let (grad_out, x, grad_weight) = (grad_out.into(), x.into(), grad_weight.into());
        let named = [("x", x), ("grad_weight", grad_weight), ("grad_out", grad_out)];
        shape.check(Check(WGRAD_KERNELS.name()), named)?;
        let GemmShape { rows, inputs, outputs } = shape;
        let operands = [(grad_out, outputs), (x, inputs), (grad_weight, inputs)];
        let product = Gemm::contiguous(WGRAD_KERNELS, compute, operands, [outputs, inputs, rows]);
        Gemm { alpha, accumulate, ..product }.launch()
    }
}
