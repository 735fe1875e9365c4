//! Skinny GEMM: products of few rows with bf16 weights.

use half::bf16;
use retrograph_kernel_abi::gemm as abi;

use super::GemmShape;
use crate::checks::Check;
use crate::gemv::{GemvForm, GemvProblem};
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, TensorView, View};

/// Kernel of [`SkinnyFprop`].
pub static SKINNY: Kernel = Kernel::new("gemm_skinny", &abi::SKINNY, |problem, _| {
    problem.gemv().map(|problem| dispatch(problem.inputs, problem.outputs[0]))
});

/// Warps that saturate the memory bandwidth of an H200: 12 on each of 132 SMs.
const MIN_WARPS: u32 = 1584;
/// Steps of K per chunk of a warp.
const CHUNK: u32 = 32;

/// Selects the smallest number of warps per tile that saturates memory bandwidth. It depends only
/// on the sizes.
fn dispatch(inputs: u32, outputs: u32) -> Dispatch {
    let tiles = outputs.div_ceil(abi::SKINNY_OUTPUTS);
    let enough =
        |split: u32| tiles.saturating_mul(split) >= MIN_WARPS || inputs.div_ceil(CHUNK) <= split;
    let splits = abi::SKINNY_SPLITS;
    let index = splits.into_iter().position(enough).unwrap_or(splits.len() - 1);
    let blocks = tiles.div_ceil(abi::SKINNY_WARPS / splits[index]);
    linear(abi::SKINNY.entries[index], blocks, abi::SKINNY_WARPS * 32)
}

/// `y = x·wᵀ (+ bias)` for up to eight rows, with x rounded to bf16.
///
/// Reads each weight once, so it takes as long as [`Gemv`](crate::gemv::Gemv). Deterministic: an
/// element of y depends only on its row of x, and has the same bits for every number of rows.
///
/// The access to w is [`ReadBeforeWait`](crate::Access::ReadBeforeWait).
#[derive(Clone, Copy, Debug)]
pub struct SkinnyFprop<B> {
    /// `[rows, inputs]`, read.
    pub x: View<B, f32>,
    /// `[outputs, inputs]`, read.
    pub w: View<B, bf16>,
    /// `[outputs]`, read: added to each row.
    pub bias: Option<View<B, f32>>,
    /// `[rows, outputs]`, written.
    pub y: View<B, f32>,
    /// The sizes: 1 to [`SkinnyFprop::MAX_ROWS`] rows, and a multiple of 8 inputs.
    pub shape: GemmShape,
}

impl<B: Copy> SkinnyFprop<B> {
    /// The maximum number of rows.
    pub const MAX_ROWS: usize = abi::SKINNY_MAX_ROWS as usize;

    /// Whether the kernel supports `shape`.
    pub fn supports(shape: GemmShape) -> bool {
        (1..=Self::MAX_ROWS).contains(&shape.rows) && shape.inputs.is_multiple_of(8)
    }

    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match the shape, the shape is not supported, or x or w do not start at
    /// multiples of 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, shape } = self;
        let check = Check(SKINNY.name);
        let views = [("x", TensorView::F32(x)), ("w", TensorView::Bf16(w))];
        shape.check(check, [views[0], views[1], ("y", TensorView::F32(y))])?;
        let GemmShape { rows, inputs, outputs } = shape;
        if let Some(bias) = bias {
            check.length("bias", bias, outputs)?;
        }
        let rule = "rows must be 1 to 8, and inputs a multiple of 8";
        check.rule(Self::supports(shape), rule, (rows, inputs))?;
        let rule = "x and w must start at multiples of 16 bytes";
        let starts = (x.byte_range().start, w.byte_range().start);
        check.rule(x.is_aligned(16) && w.is_aligned(16), rule, starts)?;
        let size = |what, size| check.at_most(what, size, MAX_EXTENT);
        let (inputs, outputs) = (size("inputs", inputs)?, size("outputs", outputs)?);
        let arguments = abi::SkinnyParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            w: Pointer::read(w).before_wait(),
            bias: Pointer::read_optional(bias),
            y: Pointer::write(y),
            rows: rows as u32,
            inputs,
            outputs,
        };
        let (outputs, lora_ranks) = ([outputs, 0, 0], [0; 3]);
        let problem = GemvProblem { inputs, outputs, lora_ranks, form: GemvForm::Plain };
        let arguments = arguments.into_arguments();
        Ok(Launch { kernel: &SKINNY, problem: Problem::Gemv(problem), arguments })
    }
}

/// The maximum inputs and outputs, so that indices in the kernel do not overflow.
const MAX_EXTENT: usize = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_outputs_are_split_among_warps_and_many_are_not() {
        let split = |inputs, outputs| {
            let Dispatch { entry, grid, .. } = dispatch(inputs, outputs);
            (entry.trim_start_matches("gemm_skinny_split"), grid[0])
        };
        assert_eq!(split(1536, 1536), ("8", 96));
        assert_eq!(split(1536, 8960), ("4", 280));
        assert_eq!(split(1536, 151_936), ("1", 1187));
        assert_eq!(split(8, 5), ("1", 1));
        assert_eq!(split(64, 5), ("2", 1));
        assert_eq!(split(8, 0).1, 0);
    }
}
