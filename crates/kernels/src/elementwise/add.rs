//! Addition.

use retrograph_kernel_abi::elementwise as abi;

use super::launch::{check, dispatch};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Output, View};

/// Kernel of [`Add`].
pub static ADD: Kernel =
    Kernel::new("add", &abi::ADD, |problem, _| dispatch(problem, abi::ADD.entries));

/// `out = a + b`.
#[derive(Clone, Copy, Debug)]
pub struct Add<B, O = View<B, f32>> {
    /// `[n]`, read.
    pub a: View<B, f32>,
    /// `[n]`, read.
    pub b: View<B, f32>,
    /// `[n]`, written: f32, bf16, or both.
    pub out: O,
}

impl<B: Copy, O: Into<Output<B>> + Copy> Add<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the lengths differ, or there are too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("a", self.a.into()), ("b", self.b.into())];
        let out = self.out.into();
        let (problem, n) = check(&ADD, &inputs, &[("out", out)])?;
        let (out, out_bf16) = out.pointers();
        let [a, b] = [self.a, self.b].map(Pointer::read);
        let parameters = abi::AddParameters::<ArgumentTypes<B>> { a, b, out, out_bf16, n };
        Ok(Launch { kernel: &ADD, problem, arguments: parameters.into_arguments() })
    }
}
