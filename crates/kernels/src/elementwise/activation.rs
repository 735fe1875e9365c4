//! SiLU, SwiGLU and their gradients.

use super::launch::{dispatch, launch};
use crate::params::{pointer, u32};
use crate::{Kernel, KernelError, Launch, Output, TensorView, View};

/// Kernel of [`Silu`].
pub static SILU: Kernel = Kernel {
    name: "silu",
    image: "silu",
    parameters: &[pointer("x"), pointer("y"), pointer("y_bf16"), u32("n")],
    entries: &["silu"],
    dispatch: |problem, _| dispatch(problem, SILU.entries),
};

/// Kernel of [`SiluBackward`].
pub static SILU_BACKWARD: Kernel = Kernel {
    name: "silu_backward",
    image: "silu_backward",
    parameters: &[
        pointer("x"),
        pointer("grad_out"),
        pointer("grad_input"),
        pointer("grad_input_bf16"),
        u32("n"),
    ],
    entries: &["silu_backward"],
    dispatch: |problem, _| dispatch(problem, SILU_BACKWARD.entries),
};

/// Kernel of [`SwiGlu`].
pub static SWIGLU: Kernel = Kernel {
    name: "swiglu",
    image: "swiglu",
    parameters: &[pointer("gate"), pointer("up"), pointer("out"), pointer("out_bf16"), u32("n")],
    entries: &["swiglu", "swiglu_bf16"],
    dispatch: |problem, _| dispatch(problem, SWIGLU.entries),
};

/// Kernel of [`SwiGluBackward`].
pub static SWIGLU_BACKWARD: Kernel = Kernel {
    name: "swiglu_backward",
    image: "swiglu_backward",
    parameters: &[
        pointer("gate"),
        pointer("up"),
        pointer("grad_out"),
        pointer("grad_gate"),
        pointer("grad_gate_bf16"),
        pointer("grad_up"),
        pointer("grad_up_bf16"),
        u32("n"),
    ],
    entries: &["swiglu_backward", "swiglu_backward_bf16"],
    dispatch: |problem, _| dispatch(problem, SWIGLU_BACKWARD.entries),
};

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
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        launch(&SILU, &[("x", self.x.into())], &[("y", self.y.into())])
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
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("x", self.x.into()), ("grad_out", self.grad_out.into())];
        launch(&SILU_BACKWARD, &inputs, &[("grad_input", self.grad_input.into())])
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
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let inputs = [("gate", self.gate.into()), ("up", self.up.into())];
        launch(&SWIGLU, &inputs, &[("out", self.out.into())])
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
    pub fn launch<B: Copy>(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let [gate, up, grad_out] = [self.gate, self.up, self.grad_out].map(Into::into);
        let inputs = [("gate", gate), ("up", up), ("grad_out", grad_out)];
        let outputs = [("grad_gate", self.grad_gate.into()), ("grad_up", self.grad_up.into())];
        launch(&SWIGLU_BACKWARD, &inputs, &outputs)
    }
}
