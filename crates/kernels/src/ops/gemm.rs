//! Matrix products of a linear layer: y = x·wᵀ and its two gradients.
//!
//! Weights are stored `outputs × inputs`, as checkpoints do. The contraction is added with fused
//! multiply-adds in an order that depends on the shape alone.

use super::product::{Product, Sizes, Strides};
use super::tiles::{self, Layout};
use crate::checks::Check;
use crate::{Kernel, KernelError, Launch, View};

/// y = α·x·wᵀ (+ bias) (+ y).
pub static FPROP: Kernel = tiles::kernel("gemm_fprop", Layout::Nt);
/// dx = α·dy·w (+ dx).
pub static DGRAD: Kernel = tiles::kernel("gemm_dgrad", Layout::Nn);
/// dw = α·dyᵀ·x (+ dw).
pub static WGRAD: Kernel = tiles::kernel("gemm_wgrad", Layout::Tn);

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

impl GemmShape {
    /// Checks the lengths of x, w and y (or of their gradients), named as in the caller.
    fn check<B: Copy>(
        self,
        check: Check,
        [x, w, y]: [(&'static str, View<B, f32>); 3],
    ) -> Result<(), KernelError> {
        let Self { rows, inputs, outputs } = self;
        check.length(x.0, x.1, check.product("rows × inputs", &[rows, inputs])?)?;
        check.length(w.0, w.1, check.product("outputs × inputs", &[outputs, inputs])?)?;
        check.length(y.0, y.1, check.product("rows × outputs", &[rows, outputs])?)
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
pub struct Fprop<B> {
    /// rows × inputs.
    pub x: View<B, f32>,
    /// outputs × inputs.
    pub w: View<B, f32>,
    /// `outputs` elements, added to every row after scaling.
    pub bias: Option<View<B, f32>>,
    /// rows × outputs; not x, w or bias.
    pub y: View<B, f32>,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> Fprop<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, shape, alpha, accumulate } = self;
        let check = Check(FPROP.name);
        shape.check(check, [("x", x), ("w", w), ("y", y)])?;
        if let Some(bias) = bias {
            check.length("bias", bias, shape.outputs)?;
        }
        Product {
            kernel: &FPROP,
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
pub struct Dgrad<B> {
    /// dy, rows × outputs.
    pub grad_out: View<B, f32>,
    /// outputs × inputs.
    pub w: View<B, f32>,
    /// dx, rows × inputs; not grad_out or w.
    pub grad_input: View<B, f32>,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether dx is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> Dgrad<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, w, grad_input, shape, alpha, accumulate } = self;
        let operands = [("grad_input", grad_input), ("w", w), ("grad_out", grad_out)];
        shape.check(Check(DGRAD.name), operands)?;
        Product {
            kernel: &DGRAD,
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
pub struct Wgrad<B> {
    /// dy, rows × outputs.
    pub grad_out: View<B, f32>,
    /// rows × inputs.
    pub x: View<B, f32>,
    /// dw, outputs × inputs; not grad_out or x.
    pub grad_weight: View<B, f32>,
    /// The sizes.
    pub shape: GemmShape,
    /// The factor α.
    pub alpha: f32,
    /// Whether dw is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> Wgrad<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, x, grad_weight, shape, alpha, accumulate } = self;
        let operands = [("x", x), ("grad_weight", grad_weight), ("grad_out", grad_out)];
        shape.check(Check(WGRAD.name), operands)?;
        Product {
            kernel: &WGRAD,
            layout: Layout::Tn,
            a: (grad_out, plain(shape.outputs)),
            b: (x, plain(shape.inputs)),
            c: (grad_weight, plain(shape.inputs)),
            bias: None,
            sizes: single(shape.outputs, shape.inputs, shape.rows),
            alpha,
            accumulate,
        }
        .launch()
    }
}
