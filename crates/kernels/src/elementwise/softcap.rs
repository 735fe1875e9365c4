//! Soft-capping and its gradient.
//!
//! Source: Gemma Team, "Gemma 2", arXiv 2408.00118, section 2.

use retrograph_kernel_abi::elementwise as abi;

use super::launch::{check, dispatch};
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Output, View};

/// Kernel of [`Softcap`].
pub static SOFTCAP: Kernel =
    Kernel::new("softcap", &abi::SOFTCAP, |problem, _| dispatch(problem, abi::SOFTCAP.entries));

/// Kernel of [`SoftcapBackward`].
pub static SOFTCAP_BACKWARD: Kernel =
    Kernel::new("softcap_backward", &abi::SOFTCAP_BACKWARD, |problem, _| {
        dispatch(problem, abi::SOFTCAP_BACKWARD.entries)
    });

/// `y = cap · tanh(x / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct Softcap<B, O = View<B, f32>> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub y: O,
    /// The cap, finite and above 0.
    pub cap: f32,
}

impl<B: Copy, O: Into<Output<B>> + Copy> Softcap<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths differ, there are too many elements, or the cap is not finite and above 0.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let out = self.y.into();
        let (problem, n) = check(&SOFTCAP, &[("x", self.x.into())], &[("y", out)])?;
        Check(SOFTCAP.name).positive("cap", self.cap)?;
        let (y, y_bf16) = out.pointers();
        let (x, cap) = (Pointer::read(self.x), self.cap);
        let parameters = abi::SoftcapParameters::<ArgumentTypes<B>> { x, y, y_bf16, n, cap };
        Ok(Launch { kernel: &SOFTCAP, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_input = grad_out · (1 − (y / cap)²)`.
#[derive(Clone, Copy, Debug)]
pub struct SoftcapBackward<B, O = View<B, f32>> {
    /// `[n]`, read: the result of the forward pass.
    pub y: View<B, f32>,
    /// `[n]`, read.
    pub grad_out: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub grad_input: O,
    /// The cap, as in the forward pass.
    pub cap: f32,
}

impl<B: Copy, O: Into<Output<B>> + Copy> SoftcapBackward<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// As [`Softcap::launch`].
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("y", self.y.into()), ("grad_out", self.grad_out.into())];
        let out = self.grad_input.into();
        let (problem, n) = check(&SOFTCAP_BACKWARD, &inputs, &[("grad_input", out)])?;
        Check(SOFTCAP_BACKWARD.name).positive("cap", self.cap)?;
        let (grad_input, grad_input_bf16) = out.pointers();
        let parameters = abi::SoftcapBackwardParameters::<ArgumentTypes<B>> {
            y: Pointer::read(self.y),
            grad_out: Pointer::read(self.grad_out),
            grad_input,
            grad_input_bf16,
            n,
            cap: self.cap,
        };
        Ok(Launch { kernel: &SOFTCAP_BACKWARD, problem, arguments: parameters.into_arguments() })
    }
}
