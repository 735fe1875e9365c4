//! Gated activations and their gradients: SwiGLU and GeGLU.
//!
//! Source: Shazeer, "GLU Variants Improve Transformer", 2020.

use retrograph_kernel_abi::elementwise::{self as abi, GatedActivation};

use super::launch::{check, dispatch};
use crate::launch::ArgumentTypes;
use crate::{Kernel, KernelError, Launch, Output, TensorView};

/// Kernel of [`Glu`] with [`GatedActivation::Silu`].
pub static SWIGLU: Kernel =
    Kernel::new("swiglu", &abi::SWIGLU, |problem, _| dispatch(problem, abi::SWIGLU.entries));

/// Kernel of [`GluBackward`] with [`GatedActivation::Silu`].
pub static SWIGLU_BACKWARD: Kernel =
    Kernel::new("swiglu_backward", &abi::SWIGLU_BACKWARD, |problem, _| {
        dispatch(problem, abi::SWIGLU_BACKWARD.entries)
    });

/// Kernel of [`Glu`] with [`GatedActivation::GeluTanh`].
pub static GEGLU: Kernel =
    Kernel::new("geglu", &abi::GEGLU, |problem, _| dispatch(problem, abi::GEGLU.entries));

/// Kernel of [`GluBackward`] with [`GatedActivation::GeluTanh`].
pub static GEGLU_BACKWARD: Kernel =
    Kernel::new("geglu_backward", &abi::GEGLU_BACKWARD, |problem, _| {
        dispatch(problem, abi::GEGLU_BACKWARD.entries)
    });

/// `out = activation(gate) · up`: SwiGLU, or GeGLU with
/// `gelu(x) = ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))`, which PyTorch calls `approximate="tanh"`.
#[derive(Clone, Copy, Debug)]
pub struct Glu<I, O> {
    /// The activation of gate.
    pub activation: GatedActivation,
    /// `[n]`, read: f32 or bf16, the same as up.
    pub gate: I,
    /// `[n]`, read.
    pub up: I,
    /// `[n]`, written: f32, bf16, or both.
    pub out: O,
}

impl<I: Copy, O: Copy> Glu<I, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths or dtypes of the inputs differ, or there are too many elements.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let kernel = match self.activation {
            GatedActivation::Silu => &SWIGLU,
            GatedActivation::GeluTanh => &GEGLU,
        };
        let ([gate, up], out) = ([self.gate, self.up].map(Into::into), self.out.into());
        let (problem, n) = check(kernel, &[("gate", gate), ("up", up)], &[("out", out)])?;
        let (out, out_bf16) = out.pointers();
        let parameters = abi::GatedParameters::<ArgumentTypes<B>> {
            gate: gate.pointer(),
            up: up.pointer(),
            out,
            out_bf16,
            n,
        };
        Ok(Launch { kernel, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_gate = grad_out · (up · activation'(gate))` and `grad_up = grad_out · activation(gate)`.
#[derive(Clone, Copy, Debug)]
pub struct GluBackward<I, O> {
    /// The activation of gate.
    pub activation: GatedActivation,
    /// `[n]`, read: gate of the forward pass; f32 or bf16, the same for all three inputs.
    pub gate: I,
    /// `[n]`, read: up of the forward pass.
    pub up: I,
    /// `[n]`, read.
    pub grad_out: I,
    /// `[n]`, written: f32, bf16, or both.
    pub grad_gate: O,
    /// `[n]`, written: f32, bf16, or both.
    pub grad_up: O,
}

impl<I: Copy, O: Copy> GluBackward<I, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths or dtypes of the inputs differ, or there are too many elements.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let kernel = match self.activation {
            GatedActivation::Silu => &SWIGLU_BACKWARD,
            GatedActivation::GeluTanh => &GEGLU_BACKWARD,
        };
        let [gate, up, grad_out] = [self.gate, self.up, self.grad_out].map(Into::into);
        let [to_gate, to_up] = [self.grad_gate, self.grad_up].map(Into::into);
        let inputs = [("gate", gate), ("up", up), ("grad_out", grad_out)];
        let (problem, n) = check(kernel, &inputs, &[("grad_gate", to_gate), ("grad_up", to_up)])?;
        let (grad_gate, grad_gate_bf16) = to_gate.pointers();
        let (grad_up, grad_up_bf16) = to_up.pointers();
        let parameters = abi::GatedBackwardParameters::<ArgumentTypes<B>> {
            gate: gate.pointer(),
            up: up.pointer(),
            grad_out: grad_out.pointer(),
            grad_gate,
            grad_gate_bf16,
            grad_up,
            grad_up_bf16,
            n,
        };
        Ok(Launch { kernel, problem, arguments: parameters.into_arguments() })
    }
}
