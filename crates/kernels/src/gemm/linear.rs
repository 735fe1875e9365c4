//! Matrix products of a linear layer: y = x·wᵀ and its two gradients.
//!
//! Weights are stored `outputs × inputs`, as checkpoints do. The contraction is added with fused
//! multiply-adds in an order that depends on the shape alone.

use crate::checks::Check;
use crate::gemm::config::product_kernels;
use crate::gemm::heuristic::Layout;
use crate::gemm::launch::{Product, Sizes, Strides};
use crate::tensor::{Compute, Family, NF4_BLOCK, Stored};
use crate::{KernelError, Launch, View};

product_kernels! {
    /// y = α·x·wᵀ (+ bias) (+ y).
    FPROP = "gemm_fprop" in NT;
    /// The same with w in NF4.
    FPROP_NF4 = "gemm_fprop_nf4" in NT_NF4;
    /// The same computed in bf16.
    FPROP_BF16 = "gemm_fprop_bf16" in BF16_NT;
    /// The same computed in bf16 with w in bf16.
    FPROP_BF16_BF16 = "gemm_fprop_bf16_bf16" in BF16_NT_BF16;
    /// The same computed in bf16 with w in NF4.
    FPROP_BF16_NF4 = "gemm_fprop_bf16_nf4" in BF16_NT_NF4;
    /// The same computed in bf16 with x and w in bf16.
    FPROP_STREAM = "gemm_fprop_multistage" in STREAM_NT;
    /// The same computed in bf16 with x in bf16 and w in NF4.
    FPROP_STREAM_NF4 = "gemm_fprop_multistage_nf4" in STREAM_NT_NF4;
    /// dx = α·dy·w (+ dx).
    DGRAD = "gemm_dgrad" in NN;
    /// The same with w in NF4.
    DGRAD_NF4 = "gemm_dgrad_nf4" in NN_NF4;
    /// The same computed in bf16.
    DGRAD_BF16 = "gemm_dgrad_bf16" in BF16_NN;
    /// The same computed in bf16 with w in bf16.
    DGRAD_BF16_BF16 = "gemm_dgrad_bf16_bf16" in BF16_NN_BF16;
    /// The same computed in bf16 with w in NF4.
    DGRAD_BF16_NF4 = "gemm_dgrad_bf16_nf4" in BF16_NN_NF4;
    /// The same computed in bf16 with dy and w in bf16.
    DGRAD_STREAM = "gemm_dgrad_multistage" in STREAM_NN;
    /// The same computed in bf16 with dy in bf16 and w in NF4.
    DGRAD_STREAM_NF4 = "gemm_dgrad_multistage_nf4" in STREAM_NN_NF4;
    /// dw = α·dyᵀ·x (+ dw).
    WGRAD = "gemm_wgrad" in TN;
    /// The same computed in bf16.
    WGRAD_BF16 = "gemm_wgrad_bf16" in BF16_TN;
    /// The same computed in bf16 with dy and x in bf16.
    WGRAD_STREAM = "gemm_wgrad_multistage" in STREAM_TN;
}

/// y = x·wᵀ.
pub(crate) const FORWARD: Family = Family {
    f32: &FPROP,
    bf16: &FPROP_BF16,
    bf16_stored: Some(&FPROP_BF16_BF16),
    nf4: Some([&FPROP_NF4, &FPROP_BF16_NF4]),
    streamed: Some(&FPROP_STREAM),
    streamed_nf4: Some(&FPROP_STREAM_NF4),
};
/// dx = dy·w.
pub(crate) const INPUT_GRADIENT: Family = Family {
    f32: &DGRAD,
    bf16: &DGRAD_BF16,
    bf16_stored: Some(&DGRAD_BF16_BF16),
    nf4: Some([&DGRAD_NF4, &DGRAD_BF16_NF4]),
    streamed: Some(&DGRAD_STREAM),
    streamed_nf4: Some(&DGRAD_STREAM_NF4),
};
/// dw = dyᵀ·x.
const WEIGHT_GRADIENT: Family =
    Family { streamed: Some(&WGRAD_STREAM), ..Family::of(&WGRAD, &WGRAD_BF16) };

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

/// Rows from which operands in bf16 are worth being written: a quarter of the smallest tile.
const MANY_ROWS: usize = 16;

impl GemmShape {
    /// Whether products in bf16 with `w` are better given x and dy in bf16: they have many rows,
    /// which can be copied 16 bytes at a time, and w is stored as bf16 or NF4, in rows that
    /// can, too.
    pub fn streams<B: Copy>(self, w: &Stored<B>) -> bool {
        let Self { rows, inputs, outputs } = self;
        let unit = match w {
            Stored::F32(_) => return false,
            Stored::Bf16(_) => 8,
            Stored::Nf4(_) => NF4_BLOCK,
        };
        rows >= MANY_ROWS && inputs % unit == 0 && outputs % 8 == 0
    }

    /// Checks the lengths of x, w and y (or of their gradients), named as in the caller.
    fn check<B: Copy>(
        self,
        check: Check,
        [x, w, y]: [(&'static str, Stored<B>); 3],
    ) -> Result<(), KernelError> {
        let Self { rows, inputs, outputs } = self;
        check.elements(x.0, x.1.len(), check.product("rows × inputs", &[rows, inputs])?)?;
        check.elements(w.0, w.1.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        check.elements(y.0, y.1.len(), check.product("rows × outputs", &[rows, outputs])?)
    }
}

/// The strides of a matrix that stands alone.
fn plain(leading: usize) -> Strides {
    Strides { leading, ..Strides::default() }
}

/// The sizes of a product that stands alone.
fn single(m: usize, n: usize, k: usize) -> Sizes {
    Sizes { m, n, k, batches: 1, heads: 1, b_group: 1, reduce: 1 }
}

/// y = α·x·wᵀ (+ bias) (+ y): rows × outputs from rows × inputs and outputs × inputs.
#[derive(Clone, Copy, Debug)]
pub struct Fprop<B, W = View<B, f32>, X = View<B, f32>, Y = View<B, f32>> {
    /// rows × inputs; in bf16 only where w is in bf16 or NF4.
    pub x: X,
    /// outputs × inputs.
    pub w: W,
    /// `outputs` elements, added to every row after scaling.
    pub bias: Option<View<B, f32>>,
    /// rows × outputs; not x, w or bias. In bf16 only where x is, and then it is not added to.
    pub y: Y,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B, W, X, Y> Fprop<B, W, X, Y>
where
    B: Copy,
    W: Into<Stored<B>>,
    X: Into<Stored<B>>,
    Y: Into<Stored<B>>,
{
    /// Checks the operands and describes the launch of a product in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of a product in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, shape, alpha, accumulate } = self;
        let (check, x, w, y) = (Check(FPROP.name), x.into(), w.into(), y.into());
        shape.check(check, [("x", x), ("w", w), ("y", y)])?;
        if let Some(bias) = bias {
            check.length("bias", bias, shape.outputs)?;
        }
        Product {
            family: FORWARD,
            compute,
            layout: Layout::Nt,
            a: (x, plain(shape.inputs)),
            b: (w, plain(shape.inputs)),
            c: (y, plain(shape.outputs)),
            bias,
            sizes: single(shape.rows, shape.outputs, shape.inputs),
            alpha,
            accumulate,
        }
        .launch()
    }
}

/// dx = α·dy·w (+ dx): rows × inputs from rows × outputs and outputs × inputs.
#[derive(Clone, Copy, Debug)]
pub struct Dgrad<Y, W, X> {
    /// dy, rows × outputs; in bf16 only where w is in bf16 or NF4.
    pub grad_out: Y,
    /// outputs × inputs.
    pub w: W,
    /// dx, rows × inputs; not grad_out or w. In bf16 only where dy is, and then it is not added to.
    pub grad_input: X,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether dx is added to instead of overwritten.
    pub accumulate: bool,
}

impl<Y, W, X> Dgrad<Y, W, X> {
    /// Checks the operands and describes the launch of a product in f32.
    pub fn launch<B: Copy>(self) -> Result<Launch<B>, KernelError>
    where
        Y: Into<Stored<B>>,
        W: Into<Stored<B>>,
        X: Into<Stored<B>>,
    {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of a product in `compute`.
    pub fn launch_in<B: Copy>(self, compute: Compute) -> Result<Launch<B>, KernelError>
    where
        Y: Into<Stored<B>>,
        W: Into<Stored<B>>,
        X: Into<Stored<B>>,
    {
        let Self { grad_out, w, grad_input, shape, alpha, accumulate } = self;
        let (grad_out, w, grad_input) = (grad_out.into(), w.into(), grad_input.into());
        let operands = [("grad_input", grad_input), ("w", w), ("grad_out", grad_out)];
        shape.check(Check(DGRAD.name), operands)?;
        Product {
            family: INPUT_GRADIENT,
            compute,
            layout: Layout::Nn,
            a: (grad_out, plain(shape.outputs)),
            b: (w, plain(shape.inputs)),
            c: (grad_input, plain(shape.inputs)),
            bias: None,
            sizes: single(shape.rows, shape.inputs, shape.outputs),
            alpha,
            accumulate,
        }
        .launch()
    }
}

/// dw = α·dyᵀ·x (+ dw): outputs × inputs from rows × outputs and rows × inputs.
#[derive(Clone, Copy, Debug)]
pub struct Wgrad<B, Y = View<B, f32>, X = View<B, f32>> {
    /// dy, rows × outputs; in bf16 only where x is.
    pub grad_out: Y,
    /// rows × inputs; in bf16 only where dy is.
    pub x: X,
    /// dw, outputs × inputs; not grad_out or x.
    pub grad_weight: View<B, f32>,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether dw is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy, Y: Into<Stored<B>>, X: Into<Stored<B>>> Wgrad<B, Y, X> {
    /// Checks the operands and describes the launch of a product in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of a product in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, x, grad_weight, shape, alpha, accumulate } = self;
        let (grad_out, x) = (grad_out.into(), x.into());
        let operands = [("x", x), ("grad_weight", grad_weight.into()), ("grad_out", grad_out)];
        shape.check(Check(WGRAD.name), operands)?;
        Product {
            family: WEIGHT_GRADIENT,
            compute,
            layout: Layout::Tn,
            a: (grad_out, plain(shape.outputs)),
            b: (x, plain(shape.inputs)),
            c: (grad_weight.into(), plain(shape.inputs)),
            bias: None,
            sizes: single(shape.outputs, shape.inputs, shape.rows),
            alpha,
            accumulate,
        }
        .launch()
    }
}
