//! Conversion from f32 to bf16.

use half::bf16;
use retrograph_kernel_abi::elementwise as abi;

use super::launch::{check, dispatch};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, View};

/// Kernel of [`Cast`].
pub static CAST: Kernel =
    Kernel::new("cast", &abi::CAST, |problem, _| dispatch(problem, abi::CAST.entries));

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
    ///
    /// # Errors
    /// If the lengths differ, or there are too many elements.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let (problem, n) = check(&CAST, &[("x", self.x.into())], &[("y", self.y.into())])?;
        let (x, y, y_bf16) = (Pointer::read(self.x), Pointer::null(), Pointer::write(self.y));
        let parameters = abi::CastParameters::<ArgumentTypes<B>> { x, y, y_bf16, n };
        Ok(Launch { kernel: &CAST, problem, arguments: parameters.into_arguments() })
    }
}
