//! Addition.

use super::launch::{dispatch, launch};
use crate::params::{pointer, u32};
use crate::{Kernel, KernelError, Launch, Output, View};

/// Kernel of [`Add`].
pub static ADD: Kernel = Kernel {
    name: "add",
    image: "add",
    parameters: &[pointer("a"), pointer("b"), pointer("out"), pointer("out_bf16"), u32("n")],
    entries: &["add"],
    dispatch: |problem, _| dispatch(problem, ADD.entries),
};

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
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let inputs = [("a", self.a.into()), ("b", self.b.into())];
        launch(&ADD, &inputs, &[("out", self.out.into())])
    }
}
