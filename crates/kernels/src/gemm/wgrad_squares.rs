//! The weight gradient with partial sums of its squares.

use half::bf16;
use retrograph_kernel_abi::gemm::{GemmSquaresParameters, SQUARES_BLOCK};

use super::GemmShape;
use super::kernels::WGRAD_KERNELS;
use super::launch::Gemm;
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, KernelError, Launch, TensorView, View};

/// `dw = dyᵀ·x`, in bf16, and partial sums of its squares, so that the gradient norm needs no other
/// read of dw.
///
/// dw has the bits of [`Wgrad`](super::Wgrad). The sum of `squares` is `Σ dw²` before rounding. A
/// tile adds its squares in f32, scaled if they leave the range of f32;
/// [`ClipFactor`](crate::optimizer::ClipFactor) adds the tiles in f64. Deterministic for a given
/// tile: the partial sums depend on the selected tile.
#[derive(Clone, Copy, Debug)]
pub struct WgradSquares<B, W = View<B, f32>> {
    /// dy, `[rows, outputs]`, read.
    pub grad_out: View<B, bf16>,
    /// `[rows, inputs]`, read.
    pub x: View<B, bf16>,
    /// dw, `[outputs, inputs]`, written: f32 or bf16.
    pub grad_weight: W,
    /// `[WgradSquares::partials(shape)]`, written.
    pub squares: View<B, f64>,
    /// The sizes.
    pub shape: GemmShape,
}

impl WgradSquares<()> {
    /// Number of partial sums of the weight gradient of a layer of this shape.
    pub fn partials(shape: GemmShape) -> usize {
        let blocks = |size: usize| size.div_ceil(SQUARES_BLOCK as usize);
        blocks(shape.outputs) * blocks(shape.inputs)
    }
}

impl<B: Copy, W: Into<TensorView<B>>> WgradSquares<B, W> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match the shape, or rows cannot be copied in vectors of 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, x, grad_weight, squares, shape } = self;
        let (grad_out, x) = (TensorView::Bf16(grad_out), TensorView::Bf16(x));
        let (grad_weight, check) = (grad_weight.into(), Check(WGRAD_KERNELS.name()));
        shape.check(check, [("x", x), ("grad_weight", grad_weight), ("grad_out", grad_out)])?;
        check.length("squares", squares, WgradSquares::partials(shape))?;
        let GemmShape { rows, inputs, outputs } = shape;
        let operands = [(grad_out, outputs), (x, inputs), (grad_weight, inputs)];
        let sizes = [outputs, inputs, rows];
        let product = Gemm::contiguous(WGRAD_KERNELS, DType::Bf16, operands, sizes);
        let squares = Pointer::write(squares);
        let further = GemmSquaresParameters::<ArgumentTypes<B>> { squares }.into_arguments();
        product.launch_with(&[], further)
    }
}
