//! SiLU and its gradient.

use retrograph_kernel_abi::elementwise as abi;

use super::launch::{check, dispatch};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Output, View};

/// Kernel of [`Silu`].
pub static SILU: Kernel =
    Kernel::new("silu", &abi::SILU, |problem, _| dispatch(problem, abi::SILU.entries));

/// Kernel of [`SiluBackward`].
pub static SILU_BACKWARD: Kernel =
    Kernel::new("silu_backward", &abi::SILU_BACKWARD, |problem, _| {
        dispatch(problem, abi::SILU_BACKWARD.entries)
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
