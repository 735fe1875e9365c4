//! Matrix-vector products: linear layers for one row of activations, `y = α·W·x + bias`.
//!
//! Definition: `GEMV` of BLAS level 2 (Dongarra et al., "An Extended Set of FORTRAN Basic Linear
//! Algebra Subprograms", 1988), with W as in `torch.nn.functional.linear`.
//!
//! One launch can have several layers with the same input ([`GroupedGemv`]), a fused RMSNorm
//! ([`NormPrologue`]), and SwiGLU ([`GatedGemv`]). With one row, a separate launch for each would
//! cost as much as the work.
//!
//! Products are f32 for every type of weights. Kernels are bound by reading the weights, so
//! rounding x would save no time. Weights are [`ReadBeforeWait`](crate::Access::ReadBeforeWait).
//!
//! x is `[inputs]`, w `[outputs, inputs]` in f32, bf16 or NF4, bias and y `[outputs]` in f32.
//!
//! **Errors.** A launch fails if a length does not match, if the layers have different types, if
//! there are more than three, or if a layer in NF4 comes with LoRA matrices or with operands that
//! are not aligned to 16 bytes.
//!
//! **Determinism.** Lanes add in ascending order, and the sums of warps that share rows are added
//! in order. The number of such warps depends only on the sizes.

mod kernels;
mod operands;
mod problem;

use crate::{Kernel, KernelError, Launch, TensorView, View};

pub use kernels::{GEMV, GEMV_BF16, GEMV_NF4};
use operands::Operands;
pub(crate) use operands::prefetched;
pub use operands::{GEMV_MAX_LAYERS, GemvLayer, NormPrologue};
pub use problem::GemvProblem;
pub use retrograph_kernel_abi::gemv::GemvForm;

/// `y = α·W·x (+ bias) (+ y)`: a linear layer for one token.
#[derive(Clone, Copy, Debug)]
pub struct Gemv<B, W = View<B, f32>> {
    /// `[inputs]`, read.
    pub x: View<B, f32>,
    /// `[outputs, inputs]`, read: f32, bf16 or NF4.
    pub w: W,
    /// `[outputs]`, read: added after scaling.
    pub bias: Option<View<B, f32>>,
    /// `[outputs]`; not x, w or bias.
    pub y: View<B, f32>,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

/// `y = W·norm(x) (+ bias)` for several W and one x.
#[derive(Clone, Copy, Debug)]
pub struct GroupedGemv<'a, B> {
    /// `[inputs]`, read.
    pub x: View<B, f32>,
    /// The norm of x.
    pub norm: Option<NormPrologue<B>>,
    /// One to three layers, whose W have the same type.
    pub layers: &'a [GemvLayer<B>],
    /// Up to three LoRA matrices A, `[rank, inputs]` in f32, read, and their `t = A·norm(x)`,
    /// written. None if W is NF4.
    pub lora_a: &'a [[View<B, f32>; 2]],
    /// The weights of the next launch, which this one prefetches into the L2 cache. Prefetches
    /// never affect results.
    pub prefetch: Option<TensorView<B>>,
}

/// `y = silu(W0·norm(x) + bias0) · (W1·norm(x) + bias1)`: gate and up projection with SwiGLU.
#[derive(Clone, Copy, Debug)]
pub struct GatedGemv<B> {
    /// `[inputs]`, read.
    pub x: View<B, f32>,
    /// The norm of x.
    pub norm: NormPrologue<B>,
    /// W0 and W1, `[outputs, inputs]`, read, of the same type.
    pub w: [TensorView<B>; 2],
    /// `[outputs]` each, read: added.
    pub biases: [Option<View<B, f32>>; 2],
    /// `[outputs]`, written.
    pub y: View<B, f32>,
    /// The weights of the next launch, as in [`GroupedGemv`].
    pub prefetch: Option<TensorView<B>>,
}

impl<B: Copy, W: Into<TensorView<B>>> Gemv<B, W> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or the kernel does not support the operands; see the module.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, alpha, accumulate } = self;
        let layers = [GemvLayer { w: w.into(), bias, y }];
        Operands { alpha, accumulate, ..Operands::plain(x, &layers) }.launch()
    }
}

impl<B: Copy> GroupedGemv<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are no layers or more than three, their types differ, a length does not match, or
    /// the kernel does not support the operands; see the module.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, layers, lora_a, prefetch } = self;
        let form = if norm.is_some() { GemvForm::Norm } else { GemvForm::Plain };
        Operands { norm, lora_a, form, prefetch, ..Operands::plain(x, layers) }.launch()
    }
}

impl<B: Copy> GatedGemv<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the types of w differ, or the kernel does not support the
    /// operands; see the module.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, w: [w0, w1], biases: [bias0, bias1], y, prefetch } = self;
        let layers = [GemvLayer { w: w0, bias: bias0, y }, GemvLayer { w: w1, bias: bias1, y }];
        let (norm, form) = (Some(norm), GemvForm::Gated);
        Operands { norm, form, prefetch, ..Operands::plain(x, &layers) }.launch()
    }
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&GEMV, &GEMV_BF16, &GEMV_NF4];
