//! Conversion from f32 to bf16.

use half::bf16;

use super::launch::{dispatch, launch};
use crate::params::{pointer, u32};
use crate::{Kernel, KernelError, Launch, View};

/// Kernel of [`Cast`].
pub static CAST: Kernel = Kernel {
    name: "cast",
    image: "cast",
    parameters: &[pointer("x"), pointer("y"), pointer("y_bf16"), u32("n")],
    entries: &["cast"],
    dispatch: |problem, _| dispatch(problem, CAST.entries),
};

/// `y = x`, rounded to bf16 to the nearest, ties to even; NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Cast<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written.
    pub y: View<B, bf16>,
}

impl<B: Copy> Cast<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        launch(&CAST, &[("x", self.x.into())], &[("y", self.y.into())])
    }
}
