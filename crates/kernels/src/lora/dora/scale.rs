//! DoRA scale: multiplies output columns by their scales; and the backward pass.

use retrograph_kernel_abi::lora::dora::{self as abi, scale as geometry};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::lora::shape::MAX_ROWS;
use crate::{
    DType, Dispatch, Kernel, KernelError, Launch, Output, Problem, SmTarget, TensorView, View,
};

/// Kernel of [`DoraScale`].
pub static DORA_SCALE: Kernel = Kernel::new("dora_scale", &abi::SCALE, |problem, _| {
    dispatch(problem, |[_, x]| geometry::entry(x))
});

/// Kernel of [`DoraScaleBackward`].
pub static DORA_SCALE_BACKWARD: Kernel =
    Kernel::new("dora_scale_backward", &abi::SCALE_BACKWARD, dispatch_backward);

/// The most columns: 128 for each block in y.
const MAX_COLUMNS: usize = MAX_GRID_YZ * geometry::COLUMNS as usize;

fn dispatch_backward(problem: &Problem, _: SmTarget) -> Option<Dispatch> {
    dispatch(problem, |[grad_out, x]| geometry::backward_entry(grad_out, x))
}

/// One block for each 64 rows and 128 columns.
fn dispatch(problem: &Problem, entry: fn([DType; 2]) -> &'static str) -> Option<Dispatch> {
    let Problem::ScaleColumns { rows, columns, dtypes } = *problem else { return None };
    let grid = [rows.div_ceil(geometry::ROWS), columns.div_ceil(geometry::COLUMNS), 1];
    Some(Dispatch { grid, ..linear(entry(dtypes), 1, geometry::THREADS) })
}

/// The sizes of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoraScaleShape {
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
}

impl DoraScaleShape {
    /// Number of 64-row tiles: each has a partial gradient of the magnitudes.
    pub fn runs(self) -> usize {
        self.rows.div_ceil(geometry::ROWS as usize)
    }

    fn check<B: Copy>(
        self,
        check: Check,
        operands: &[(&'static str, TensorView<B>)],
        name: &'static str,
        to: Output<B>,
    ) -> Result<[u32; 2], KernelError> {
        let expected = check.product("rows × columns", &[self.rows, self.columns])?;
        for &(name, operand) in operands {
            check.elements(name, operand.len(), expected)?;
            let (kernel, compute, dtype) = (check.0, DType::F32, operand.dtype());
            if !geometry::DTYPES.contains(&dtype) {
                let help = "read it in f32 or bf16";
                return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
            }
        }
        to.check(check, name, expected)?;
        let rows = check.at_most("rows", self.rows, MAX_ROWS)?;
        Ok([rows, check.at_most("columns", self.columns, MAX_COLUMNS)?])
    }
}

/// `y = x ⊙ mag_norm_scales + bias`, with one scale and one bias per column.
///
/// Deterministic: one thread computes each element. y may be x.
#[derive(Clone, Copy, Debug)]
pub struct DoraScale<B, I, O> {
    /// `[rows, columns]`, read: f32 or bf16.
    pub x: I,
    /// `[columns]`, read.
    pub mag_norm_scales: View<B, f32>,
    /// `[columns]`, read; 0 if `None`.
    pub bias: Option<View<B, f32>>,
    /// `[rows, columns]`, written: f32, bf16, or both.
    pub y: O,
    /// The sizes.
    pub shape: DoraScaleShape,
}

impl<B: Copy, I: Copy, O: Copy> DoraScale<B, I, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length or dtype does not match, or a size is too large.
    pub fn launch(&self) -> Result<Launch<B>, KernelError>
    where
        I: Into<TensorView<B>>,
        O: Into<Output<B>>,
    {
        let Self { mag_norm_scales, bias, shape, .. } = *self;
        let (x, y, check) = (self.x.into(), self.y.into(), Check(DORA_SCALE.name));
        let [rows, columns] = shape.check(check, &[("x", x)], "y", y)?;
        check.length("mag_norm_scales", mag_norm_scales, shape.columns)?;
        bias.map_or(Ok(()), |bias| check.length("bias", bias, shape.columns))?;
        let (y, y_bf16) = y.pointers();
        let parameters = abi::ScaleParameters::<ArgumentTypes<B>> {
            x: x.pointer(),
            mag_norm_scales: Pointer::read(mag_norm_scales),
            bias: Pointer::read_optional(bias),
            y,
            y_bf16,
            rows,
            columns,
        };
        let problem = Problem::ScaleColumns { rows, columns, dtypes: [x.dtype(); 2] };
        Ok(Launch { kernel: &DORA_SCALE, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_input = grad_out ⊙ mag_norm_scales`, and `Σ grad_out ⊙ x / norms` over each tile of 64
/// rows. [`ColumnSum`](crate::norm::ColumnSum) adds the tiles.
///
/// Deterministic: in a tile, each of eight chains of fused multiply-adds has every eighth row; they
/// are added in order. `grad_input` may be `grad_out`.
#[derive(Clone, Copy, Debug)]
pub struct DoraScaleBackward<B, O> {
    /// `[rows, columns]`, read: f32 or bf16.
    pub grad_out: TensorView<B>,
    /// `[rows, columns]`, read: x of the forward pass, f32 or bf16.
    pub x: TensorView<B>,
    /// `[columns]`, read.
    pub mag_norm_scales: View<B, f32>,
    /// `[columns]`, read.
    pub norms: View<B, f32>,
    /// `[rows, columns]`, written: f32, bf16, or both.
    pub grad_input: O,
    /// `[runs, columns]`, written; see [`DoraScaleShape::runs`].
    pub grad_magnitudes: View<B, f32>,
    /// The sizes.
    pub shape: DoraScaleShape,
}

impl<B: Copy, O: Copy> DoraScaleBackward<B, O> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length or dtype does not match, or a size is too large.
    pub fn launch(&self) -> Result<Launch<B>, KernelError>
    where
        O: Into<Output<B>>,
    {
        let Self { grad_out, x, mag_norm_scales, norms, grad_magnitudes, shape, .. } = *self;
        let (to, check) = (self.grad_input.into(), Check(DORA_SCALE_BACKWARD.name));
        let inputs = [("grad_out", grad_out), ("x", x)];
        let [rows, columns] = shape.check(check, &inputs, "grad_input", to)?;
        check.length("mag_norm_scales", mag_norm_scales, shape.columns)?;
        check.length("norms", norms, shape.columns)?;
        let partials = check.product("runs × columns", &[shape.runs(), shape.columns])?;
        check.length("grad_magnitudes", grad_magnitudes, partials)?;
        let (grad_input, grad_input_bf16) = to.pointers();
        let parameters = abi::ScaleBackwardParameters::<ArgumentTypes<B>> {
            grad_out: grad_out.pointer(),
            x: x.pointer(),
            mag_norm_scales: Pointer::read(mag_norm_scales),
            norms: Pointer::read(norms),
            grad_input,
            grad_input_bf16,
            grad_magnitudes: Pointer::write(grad_magnitudes),
            rows,
            columns,
        };
        let dtypes = [grad_out.dtype(), x.dtype()];
        let problem = Problem::ScaleColumns { rows, columns, dtypes };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &DORA_SCALE_BACKWARD, problem, arguments })
    }
}
