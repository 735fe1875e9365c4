//! DoRA norms: the row norms of an updated weight, and the scales of its outputs.

use retrograph_kernel_abi::lora::dora::{self as abi, norms as geometry};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, TensorView, View};

/// Kernel of [`DoraNorms`].
pub static DORA_NORMS: Kernel = Kernel::new("dora_norms", &abi::NORMS, dispatch);

/// One block for each 32 rows of the weight.
fn dispatch(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    let (outputs, dtype) = problem.elements()?;
    let blocks = outputs.div_ceil(geometry::ROWS);
    Some(linear(geometry::entry(dtype)?, blocks, geometry::THREADS))
}

/// `norms[j] = ‖w[j] + scale·b[j]·a‖₂` and `mag_norm_scales[j] = magnitudes[j] / norms[j]`.
///
/// If the norm of a row is 0, the factor is NaN or infinite, as in IEEE division. Deterministic:
/// each of 32 lanes adds the squares of every 32nd element of a row in ascending order, and a
/// butterfly reduction adds the lanes. Elements from 1e-30 to 1e30 keep full accuracy.
#[derive(Clone, Copy, Debug)]
pub struct DoraNorms<W, B> {
    /// `[outputs, inputs]`, read: f32 or bf16.
    pub w: W,
    /// `[rank, inputs]`, read.
    pub a: View<B, f32>,
    /// `[outputs, rank]`, read.
    pub b: View<B, f32>,
    /// `[outputs]`, read.
    pub magnitudes: View<B, f32>,
    /// `[outputs]`, written.
    pub norms: View<B, f32>,
    /// `[outputs]`, written.
    pub mag_norm_scales: View<B, f32>,
    /// Elements in a row of w.
    pub inputs: usize,
    /// The rank of the update.
    pub rank: usize,
    /// The scale of the update.
    pub scale: f32,
}

impl<W: Copy, B: Copy> DoraNorms<W, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If w is neither f32 nor bf16, a length does not match, or a size is too large.
    pub fn launch(&self) -> Result<Launch<B>, KernelError>
    where
        W: Into<TensorView<B>>,
    {
        let Self { a, b, magnitudes, norms, mag_norm_scales, inputs, rank, scale, .. } = *self;
        let (w, check) = (self.w.into(), Check(DORA_NORMS.name));
        let dtype = w.dtype();
        if geometry::entry(dtype).is_none() {
            let (kernel, compute) = (DORA_NORMS.name, DType::F32);
            let help = "dequantize NF4 weights to bf16 first";
            return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
        }
        let outputs = magnitudes.len();
        check.elements("w", w.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        check.length("a", a, check.product("rank × inputs", &[rank, inputs])?)?;
        check.length("b", b, check.product("outputs × rank", &[outputs, rank])?)?;
        check.length("norms", norms, outputs)?;
        check.length("mag_norm_scales", mag_norm_scales, outputs)?;
        let outputs = check.at_most("outputs", outputs, MAX_GRID_X)?;
        // The kernel advances columns and ranks in steps, and the index must not wrap around.
        let parameters = abi::NormsParameters::<ArgumentTypes<B>> {
            w: w.pointer(),
            a: Pointer::read(a),
            b: Pointer::read(b),
            magnitudes: Pointer::read(magnitudes),
            norms: Pointer::write(norms),
            mag_norm_scales: Pointer::write(mag_norm_scales),
            outputs,
            inputs: check.at_most("inputs", inputs, MAX_GRID_X)?,
            rank: check.at_most("rank", rank, MAX_GRID_X)?,
            scale,
        };
        let problem = Problem::Elements { count: outputs, dtype };
        Ok(Launch { kernel: &DORA_NORMS, problem, arguments: parameters.into_arguments() })
    }
}
