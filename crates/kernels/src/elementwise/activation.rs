//! SiLU, SwiGLU and their gradients.

use retrograph_kernel_abi::elementwise as abi;

use super::launch::{check, dispatch};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Output, TensorView, View};

/// Kernel of [`Silu`].
pub static SILU: Kernel =
    Kernel::new("silu", &abi::SILU, |problem, _| dispatch(problem, abi::SILU.entries));

/// Kernel of [`SiluBackward`].
pub static SILU_BACKWARD: Kernel =
    Kernel::new("silu_backward", &abi::SILU_BACKWARD, |problem, _| {
        dispatch(problem, abi::SILU_BACKWARD.entries)
    });

/// Kernel of [`SwiGlu`].
pub static SWIGLU: Kernel =
    Kernel::new("swiglu", &abi::SWIGLU, |problem, _| dispatch(problem, abi::SWIGLU.entries));

/// Kernel of [`SwiGluBackward`].
pub static SWIGLU_BACKWARD: Kernel =
    Kernel::new("swiglu_backward", &abi::SWIGLU_BACKWARD, |problem, _| {
        dispatch(problem, abi::SWIGLU_BACKWARD.entries)
    });

/// `y = x · σ(x)`. −∞ gives NaN, as `x / (1 + exp(−x))` does.
#[derive(Clone, Copy, Debug)]
pub struct Silu<B, O = View<B, f32>> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub y: O,
}

impl<B: Copy, O: Into<Output<B>> + Copy> Silu<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths differ, or there are too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let out = self.y.into();
        let (problem, n) = check(&SILU, &[("x", self.x.into())], &[("y", out)])?;
        let (y, y_bf16) = out.pointers();
        let x = Pointer::read(self.x);
        let parameters = abi::SiluParameters::<ArgumentTypes<B>> { x, y, y_bf16, n };
        Ok(Launch { kernel: &SILU, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_input = grad_out · σ(x) · (1 + x · σ(−x))`.
#[derive(Clone, Copy, Debug)]
pub struct SiluBackward<B, O = View<B, f32>> {
    /// `[n]`, read: the input of the forward pass.
    pub x: View<B, f32>,
    /// `[n]`, read.
    pub grad_out: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub grad_input: O,
}

impl<B: Copy, O: Into<Output<B>> + Copy> SiluBackward<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths differ, or there are too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("x", self.x.into()), ("grad_out", self.grad_out.into())];
        let out = self.grad_input.into();
        let (problem, n) = check(&SILU_BACKWARD, &inputs, &[("grad_input", out)])?;
        let (grad_input, grad_input_bf16) = out.pointers();
        let parameters = abi::SiluBackwardParameters::<ArgumentTypes<B>> {
            x: Pointer::read(self.x),
            grad_out: Pointer::read(self.grad_out),
            grad_input,
            grad_input_bf16,
            n,
        };
        Ok(Launch { kernel: &SILU_BACKWARD, problem, arguments: parameters.into_arguments() })
    }
}

/// `out = silu(gate) · up`.
///
/// Source: Shazeer, "GLU Variants Improve Transformer", 2020.
#[derive(Clone, Copy, Debug)]
pub struct SwiGlu<I, O> {
    /// `[n]`, read: f32 or bf16, the same as up.
    pub gate: I,
    /// `[n]`, read.
    pub up: I,
    /// `[n]`, written: f32, bf16, or both.
    pub out: O,
}

impl<I: Copy, O: Copy> SwiGlu<I, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths or dtypes of the inputs differ, or there are too many elements.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let ([gate, up], out) = ([self.gate, self.up].map(Into::into), self.out.into());
        let (problem, n) = check(&SWIGLU, &[("gate", gate), ("up", up)], &[("out", out)])?;
        let (out, out_bf16) = out.pointers();
        let parameters = abi::SwiGluParameters::<ArgumentTypes<B>> {
            gate: gate.pointer(),
            up: up.pointer(),
            out,
            out_bf16,
            n,
        };
        Ok(Launch { kernel: &SWIGLU, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_gate = grad_out · (up · silu'(gate))` and `grad_up = grad_out · silu(gate)`.
#[derive(Clone, Copy, Debug)]
pub struct SwiGluBackward<I, O> {
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

impl<I: Copy, O: Copy> SwiGluBackward<I, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths or dtypes of the inputs differ, or there are too many elements.
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let [gate, up, grad_out] = [self.gate, self.up, self.grad_out].map(Into::into);
        let inputs = [("gate", gate), ("up", up), ("grad_out", grad_out)];
        let [to_gate, to_up] = [self.grad_gate, self.grad_up].map(Into::into);
        let outputs = [("grad_gate", to_gate), ("grad_up", to_up)];
        let (problem, n) = check(&SWIGLU_BACKWARD, &inputs, &outputs)?;
        let ((grad_gate, grad_gate_bf16), (grad_up, grad_up_bf16)) =
            (to_gate.pointers(), to_up.pointers());
        let parameters = abi::SwiGluBackwardParameters::<ArgumentTypes<B>> {
            gate: gate.pointer(),
            up: up.pointer(),
            grad_out: grad_out.pointer(),
            grad_gate,
            grad_gate_bf16,
            grad_up,
            grad_up_bf16,
            n,
        };
        Ok(Launch { kernel: &SWIGLU_BACKWARD, problem, arguments: parameters.into_arguments() })
    }
}
