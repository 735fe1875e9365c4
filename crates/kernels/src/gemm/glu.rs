//! Gated linear units in bf16: SwiGLU and GeGLU in the epilogue of a product.
//!
//! The epilogue first rounds each product to bf16, so results have the bits of plain products
//! followed by the elementwise kernel, [`Glu`](crate::ops::Glu) or
//! [`GluBackward`](crate::ops::GluBackward). Fusing saves another read and write of the largest
//! activations of a layer.
//!
//! Source: Shazeer, "GLU Variants Improve Transformer", 2020.

use half::bf16;
use retrograph_kernel_abi::elementwise::GatedActivation;
use retrograph_kernel_abi::gemm::{GemmGluBackwardParameters, GemmGluParameters};

use super::GemmShape;
use super::kernels::{
    GEGLU_DGRAD_KERNELS, GEGLU_FPROP_KERNELS, GemmKernels, SWIGLU_DGRAD_KERNELS,
    SWIGLU_FPROP_KERNELS,
};
use super::launch::{AddedProduct, Gemm};
use super::operand::{GemmSizes, Operand, Strides};
use super::tensor_map::matrix_maps;
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, KernelError, Launch, TensorView, View};

fn forward_kernels(activation: GatedActivation) -> GemmKernels {
    match activation {
        GatedActivation::Silu => SWIGLU_FPROP_KERNELS,
        GatedActivation::GeluTanh => GEGLU_FPROP_KERNELS,
    }
}

fn backward_kernels(activation: GatedActivation) -> GemmKernels {
    match activation {
        GatedActivation::Silu => SWIGLU_DGRAD_KERNELS,
        GatedActivation::GeluTanh => GEGLU_DGRAD_KERNELS,
    }
}

/// `gate = x·w_gateᵀ`, `up = x·w_upᵀ` and `out = activation(gate) · up`.
#[derive(Clone, Copy, Debug)]
pub struct GluFprop<B> {
    /// The activation of gate.
    pub activation: GatedActivation,
    /// `[rows, inputs]`, read.
    pub x: View<B, bf16>,
    /// The weights of gate and up, `[outputs, inputs]` each, read.
    pub w: [View<B, bf16>; 2],
    /// Gate and up, `[rows, outputs]` each, written. A backward pass needs them.
    pub products: Option<[View<B, bf16>; 2]>,
    /// `[rows, outputs]`, written.
    pub out: View<B, bf16>,
    /// The sizes of each product. Inputs and outputs are multiples of 8; inputs must not be 0.
    pub shape: GemmShape,
}

impl<B: Copy> GluFprop<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the contraction is empty, or rows cannot be copied in vectors of
    /// 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { activation, x, w: [w_gate, w_up], products, out, shape } = self;
        let GemmShape { rows, inputs, outputs } = shape;
        let kernels = forward_kernels(activation);
        let check = Check(kernels.name());
        let [gate, up] = products.map_or([None; 2], |products| products.map(Some));
        let lengths = [("rows × inputs", [rows, inputs]), ("outputs × inputs", [outputs, inputs])];
        let [x_len, w_len] = lengths.map(|(name, sizes)| check.product(name, &sizes));
        let len = check.product("rows × outputs", &[rows, outputs])?;
        check.length("x", x, x_len?)?;
        for (name, w) in [("the weight of gate", w_gate), ("the weight of up", w_up)] {
            check.length(name, w, w_len.clone()?)?;
        }
        for (name, result) in [("gate", gate), ("up", up), ("out", Some(out))] {
            result.map_or(Ok(()), |result| check.length(name, result, len))?;
        }
        let [x_columns, w_columns, columns] = [inputs, inputs, outputs].map(Strides::contiguous);
        let gemm = Gemm {
            kernels,
            compute: DType::Bf16,
            a: Operand { view: x.into(), strides: x_columns },
            b: Operand { view: w_gate.into(), strides: w_columns },
            c: Operand { view: out.into(), strides: columns },
            bias: None,
            sizes: GemmSizes::single([rows, outputs, inputs]),
            alpha: 1.0,
            accumulate: false,
        };
        let (results, weights) = ([rows, outputs], [outputs, inputs]);
        let matrices = [(x, [rows, inputs]), (w_gate, weights), (w_up, weights), (out, results)];
        let is_empty = rows == 0 || outputs == 0;
        let [_, _, up_b_map, _] = matrix_maps(check, is_empty, matrices)?;
        let map = |product: Option<View<B, bf16>>| match product {
            Some(product) => matrix_maps(check, is_empty, [(product, results)]).map(|[map]| map),
            None => Ok(None),
        };
        let further = GemmGluParameters::<ArgumentTypes<B>> {
            up_b: Pointer::read(w_up),
            gate: Pointer::write_optional(gate),
            up: Pointer::write_optional(up),
            up_b_map,
            gate_map: map(gate)?,
            up_map: map(up)?,
        };
        gemm.launch_with(&[], further.into_arguments())
    }
}

/// `grad_gate = grad · up · activation'(gate)` and `grad_up = grad · activation(gate)`, where
/// `grad = dy·w (+ dy₁·w₁)` is the gradient of `activation(gate) · up`, the input of the layer with
/// the weight w.
#[derive(Clone, Copy, Debug)]
pub struct GluDgrad<B> {
    /// The activation of gate.
    pub activation: GatedActivation,
    /// dy, `[rows, outputs]`, read.
    pub grad_out: View<B, bf16>,
    /// `[outputs, inputs]`, read.
    pub w: View<B, bf16>,
    /// dy₁ `[rows, k]` and w₁ `[k, inputs]`, read, and k, a multiple of 8.
    pub second: Option<([View<B, bf16>; 2], usize)>,
    /// `[rows, inputs]`, read: gate of the forward pass.
    pub gate: View<B, bf16>,
    /// `[rows, inputs]`, read: up of the forward pass.
    pub up: View<B, bf16>,
    /// `[rows, inputs]`, written.
    pub grad_gate: View<B, bf16>,
    /// `[rows, inputs]`, written.
    pub grad_up: View<B, bf16>,
    /// The sizes of the layer with the weight w. Inputs and outputs are multiples of 8; outputs
    /// must not be 0.
    pub shape: GemmShape,
}

impl<B: Copy> GluDgrad<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the contraction is empty, or rows cannot be copied in vectors of
    /// 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { activation, grad_out, w, second, gate, up, grad_gate, grad_up, shape } = self;
        let GemmShape { rows, inputs, outputs } = shape;
        let kernels = backward_kernels(activation);
        let check = Check(kernels.name());
        check.length("grad_out", grad_out, check.product("rows × outputs", &[rows, outputs])?)?;
        check.length("w", w, check.product("outputs × inputs", &[outputs, inputs])?)?;
        let len = check.product("rows × inputs", &[rows, inputs])?;
        let results = [("gate", gate), ("up", up), ("grad_gate", grad_gate), ("grad_up", grad_up)];
        for (name, view) in results {
            check.length(name, view, len)?;
        }
        if let Some(([dy, w], k)) = second {
            check.length("dy₁", dy, check.product("rows × k", &[rows, k])?)?;
            check.length("w₁", w, check.product("k × inputs", &[k, inputs])?)?;
        }
        let [dy_columns, columns] = [outputs, inputs].map(Strides::contiguous);
        let gemm = Gemm {
            kernels,
            compute: DType::Bf16,
            a: Operand { view: TensorView::Bf16(grad_out), strides: dy_columns },
            b: Operand { view: w.into(), strides: columns },
            c: Operand { view: grad_gate.into(), strides: columns },
            bias: None,
            sizes: GemmSizes::single([rows, inputs, outputs]),
            alpha: 1.0,
            accumulate: false,
        };
        let results = results.map(|(_, view)| (view, [rows, inputs]));
        let is_empty = rows == 0 || inputs == 0;
        let [gate_map, up_map, _, grad_up_map] = matrix_maps(check, is_empty, results)?;
        let operands = [(grad_out, [rows, outputs]), (w, [outputs, inputs])];
        matrix_maps(check, is_empty, operands)?;
        let further = GemmGluBackwardParameters::<ArgumentTypes<B>> {
            gate: Pointer::read(gate),
            up: Pointer::read(up),
            grad_up: Pointer::write(grad_up),
            gate_map,
            up_map,
            grad_up_map,
        };
        let added =
            second.map(|([a, b], k)| AddedProduct { a: (a, k), b: (b, inputs), k, n: inputs });
        gemm.launch_with(&[added], further.into_arguments())
    }
}
