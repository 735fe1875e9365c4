//! Split-K: products whose contraction is divided into equal splits, and the sum of the splits.
//!
//! A product with a long contraction and a small result has too few tiles to fill a device. With
//! split-K, each split is a plane of one launch, and [`SplitKSum`] adds the planes in ascending
//! order. [`GemmShape::fprop_splits`], [`GemmShape::dgrad_splits`] and [`GemmShape::wgrad_splits`]
//! choose the number of splits, which determines the bits of the result. It depends only on the
//! shape and on [`GemmConfig`](super::GemmConfig).

use retrograph_kernel_abi::gemm as abi;

use super::GemmShape;
use super::kernels::{DGRAD_KERNELS, FPROP_KERNELS, WGRAD_KERNELS};
use super::launch::Gemm;
use super::operand::{GemmSizes, Operand, Strides};
use crate::checks::Check;
use crate::geometry::per_vec4;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, Kernel, KernelError, Launch, Output, Problem, TensorView, View};

/// Kernel of [`SplitKSum`].
pub static SPLIT_K_SUM: Kernel = Kernel::new("split_k_sum", &abi::SPLIT_K_SUM, |problem, _| {
    problem.items().map(|count| per_vec4(abi::SPLIT_K_SUM.entries[0], count))
});

/// The splits of `y = x·wᵀ`: `partials[s] = x[:, split s] · w[:, split s]ᵀ`.
#[derive(Clone, Copy, Debug)]
pub struct FpropSplitK<B, W = View<B, f32>, X = View<B, f32>> {
    /// `[rows, inputs]`: f32, bf16 if w is bf16 or NF4, or split if w is split.
    pub x: X,
    /// `[outputs, inputs]`: f32, bf16, NF4 or split.
    pub w: W,
    /// `[splits, rows, outputs]`, written.
    pub partials: View<B, f32>,
    /// The sizes of the whole product.
    pub shape: GemmShape,
    /// Number of splits, a divisor of `inputs`.
    pub splits: usize,
}

impl<B: Copy, W: Into<TensorView<B>>, X: Into<TensorView<B>>> FpropSplitK<B, W, X> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`FpropSplitK::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, `splits` does not divide the contraction, the split
    /// length of split operands is not a multiple of 64, or no kernel supports the combination of
    /// types.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { x, w, partials, shape, splits } = self;
        let (x, w) = (x.into(), w.into());
        let GemmShape { rows, inputs, outputs } = shape;
        let check = Check(FPROP_KERNELS.name());
        let split_k = split_length(check, inputs, splits)?;
        check.elements("x", x.len(), check.product("rows × inputs", &[rows, inputs])?)?;
        check.elements("w", w.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        let elements = check.product("splits × rows × outputs", &[splits, rows, outputs])?;
        check.length("partials", partials, elements)?;
        let columns = Strides { leading: inputs, batch: split_k, ..Strides::default() };
        Gemm {
            kernels: FPROP_KERNELS,
            compute,
            a: Operand { view: x, strides: columns },
            b: Operand { view: w, strides: columns },
            c: Operand { view: partials.into(), strides: planes(rows, outputs) },
            bias: None,
            sizes: GemmSizes { batches: splits, ..GemmSizes::single([rows, outputs, split_k]) },
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}

/// The splits of `dx = dy·w`: `partials[s] = dy[:, split s] · w[split s, :]`.
#[derive(Clone, Copy, Debug)]
pub struct DgradSplitK<B, W = View<B, f32>, Y = View<B, f32>> {
    /// dy, `[rows, outputs]`: f32, bf16 if w is bf16 or NF4, or, if w is split, split with the
    /// scales of w as column scales.
    pub grad_out: Y,
    /// `[outputs, inputs]`: f32, bf16, NF4 or split.
    pub w: W,
    /// `[splits, rows, inputs]`, written.
    pub partials: View<B, f32>,
    /// The sizes of the whole product.
    pub shape: GemmShape,
    /// Number of splits, a divisor of `outputs`.
    pub splits: usize,
}

impl<B: Copy, W: Into<TensorView<B>>, Y: Into<TensorView<B>>> DgradSplitK<B, W, Y> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`DgradSplitK::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, `splits` does not divide the contraction, the split
    /// length of split operands is not a multiple of 64, or no kernel supports the combination of
    /// types.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, w, partials, shape, splits } = self;
        let (grad_out, w) = (grad_out.into(), w.into());
        let GemmShape { rows, inputs, outputs } = shape;
        let check = Check(DGRAD_KERNELS.name());
        let split_k = split_length(check, outputs, splits)?;
        let elements = check.product("rows × outputs", &[rows, outputs])?;
        check.elements("grad_out", grad_out.len(), elements)?;
        check.elements("w", w.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        let elements = check.product("splits × rows × inputs", &[splits, rows, inputs])?;
        check.length("partials", partials, elements)?;
        let w_split = check.product("a split of w", &[split_k, inputs])?;
        Gemm {
            kernels: DGRAD_KERNELS,
            compute,
            a: Operand {
                view: grad_out,
                strides: Strides { leading: outputs, batch: split_k, ..Strides::default() },
            },
            b: Operand {
                view: w,
                strides: Strides { leading: inputs, batch: w_split, ..Strides::default() },
            },
            c: Operand { view: partials.into(), strides: planes(rows, inputs) },
            bias: None,
            sizes: GemmSizes { batches: splits, ..GemmSizes::single([rows, inputs, split_k]) },
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}

/// The splits of `dw = dyᵀ·x`: `partials[s] = dy[split s, :]ᵀ · x[split s, :]`.
#[derive(Clone, Copy, Debug)]
pub struct WgradSplitK<B, Y = View<B, f32>, X = View<B, f32>> {
    /// dy, `[rows, outputs]`: f32 or bf16, the same as x.
    pub grad_out: Y,
    /// `[rows, inputs]`: f32 or bf16, the same as dy.
    pub x: X,
    /// `[splits, outputs, inputs]`, written.
    pub partials: View<B, f32>,
    /// The sizes of the whole product.
    pub shape: GemmShape,
    /// Number of splits, a divisor of `rows`.
    pub splits: usize,
}

impl<B: Copy, Y: Into<TensorView<B>>, X: Into<TensorView<B>>> WgradSplitK<B, Y, X> {
    /// Checks the operands and describes a launch that computes in f32.
    ///
    /// # Errors
    /// The errors of [`WgradSplitK::launch_in`].
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, `splits` does not divide the contraction, or no kernel
    /// supports the combination of types.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, x, partials, shape, splits } = self;
        let (grad_out, x) = (grad_out.into(), x.into());
        let GemmShape { rows, inputs, outputs } = shape;
        let check = Check(WGRAD_KERNELS.name());
        let split_k = split_length(check, rows, splits)?;
        let elements = check.product("rows × outputs", &[rows, outputs])?;
        check.elements("grad_out", grad_out.len(), elements)?;
        check.elements("x", x.len(), check.product("rows × inputs", &[rows, inputs])?)?;
        let elements = check.product("splits × outputs × inputs", &[splits, outputs, inputs])?;
        check.length("partials", partials, elements)?;
        let split =
            |columns| Strides { leading: columns, batch: split_k * columns, ..Strides::default() };
        Gemm {
            kernels: WGRAD_KERNELS,
            compute,
            a: Operand { view: grad_out, strides: split(outputs) },
            b: Operand { view: x, strides: split(inputs) },
            c: Operand { view: partials.into(), strides: planes(outputs, inputs) },
            bias: None,
            sizes: GemmSizes { batches: splits, ..GemmSizes::single([outputs, inputs, split_k]) },
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}

/// Length of one split of a contraction of `k`.
fn split_length(check: Check, k: usize, splits: usize) -> Result<usize, KernelError> {
    let divides = splits > 0 && k.is_multiple_of(splits);
    check.rule(divides, "the number of splits must divide the contraction", [splits, k])?;
    Ok(k / splits)
}

/// The strides of consecutive planes of a result.
fn planes(rows: usize, columns: usize) -> Strides {
    Strides { leading: columns, batch: rows * columns, ..Strides::default() }
}

/// `out[i] = Σ_s partials[s, i]`, in ascending order of s.
///
/// Deterministic: one thread computes each element.
#[derive(Clone, Copy, Debug)]
pub struct SplitKSum<B, O = View<B, f32>> {
    /// `[splits, n]`, read.
    pub partials: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub out: O,
    /// Number of splits, at least 1.
    pub splits: usize,
}

impl<B: Copy, O: Into<Output<B>>> SplitKSum<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `splits` is 0, or a length does not match.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { partials, out, splits } = self;
        let (check, out) = (Check(SPLIT_K_SUM.name), out.into());
        check.rule(splits > 0, "there must be at least one split", splits)?;
        let len = partials.len() / splits;
        check.length("partials", partials, check.product("splits × n", &[splits, len])?)?;
        out.check(check, "out", len)?;
        let n = check.size("the number of elements", len)?;
        let (out, out_bf16) = out.pointers();
        let parameters = abi::SplitKSumParameters::<ArgumentTypes<B>> {
            partials: Pointer::read(partials),
            out,
            out_bf16,
            splits: check.size("the number of splits", splits)?,
            n,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT_K_SUM, problem: Problem::Items(n), arguments })
    }
}
