//! Skinny GEMM: products of few rows with bf16 weights.
//!
//! The kernel is bound by reading the weights once, like [`Gemv`](crate::gemv::Gemv). One launch
//! can have several layers with the same input, and SwiGLU.
//!
//! x is bf16, or rounded to bf16; products accumulate in f32.
//!
//! **Errors.** A launch fails if a length does not match, if there are not 1 to
//! [`SkinnyFprop::MAX_ROWS`] rows, if the inputs are not a multiple of 8, or if x or a weight does
//! not start at a multiple of 16 bytes.
//!
//! **Determinism.** An element of y depends only on its row of x, and has the same bits for every
//! number of rows.

mod dispatch;
mod problem;

use half::bf16;
use retrograph_kernel_abi::Any;
use retrograph_kernel_abi::gemm as abi;
pub use retrograph_kernel_abi::gemm::SkinnyForm;

use super::GemmShape;
use crate::checks::Check;
use crate::gemv::prefetched;
use crate::geometry::MAX_EXTENT;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, Kernel, KernelError, Launch, Problem, TensorView, View};
use dispatch::dispatch;
pub use problem::SkinnyProblem;

/// Kernel of [`SkinnyFprop`] and [`SkinnySwiGlu`].
pub static SKINNY: Kernel =
    Kernel::new("gemm_skinny", &abi::SKINNY, |problem, _| problem.skinny().map(dispatch));

/// A layer of a [`SkinnyFprop`].
#[derive(Clone, Copy, Debug)]
pub struct SkinnyLayer<B> {
    /// `[outputs, inputs]`, read. The access is
    /// [`ReadBeforeWait`](crate::Access::ReadBeforeWait).
    pub w: View<B, bf16>,
    /// `[outputs]`, read: added to each row.
    pub bias: Option<View<B, f32>>,
    /// `[rows, outputs]`, written or accumulated.
    pub y: View<B, f32>,
}

/// `y = x·wᵀ (+ bias) (+ y)` for several w and one x of up to eight rows.
#[derive(Clone, Copy, Debug)]
pub struct SkinnyFprop<'a, B> {
    /// `[rows, inputs]`, read: f32 or bf16.
    pub x: TensorView<B>,
    /// One to three layers.
    pub layers: &'a [SkinnyLayer<B>],
    /// Whether the results are added to y instead of replacing it.
    pub accumulate: bool,
    /// The weights of the next launch, which this one prefetches into the L2 cache. Prefetches
    /// never affect results.
    pub prefetch: Option<TensorView<B>>,
    /// Number of rows, 1 to [`SkinnyFprop::MAX_ROWS`].
    pub rows: usize,
}

/// `y = silu(w0·x + bias0) · (w1·x + bias1)` for up to eight rows of x: gate and up
/// projection with SwiGLU.
#[derive(Clone, Copy, Debug)]
pub struct SkinnySwiGlu<B> {
    /// `[rows, inputs]`, read.
    pub x: View<B, bf16>,
    /// w0 and w1, `[outputs, inputs]`, read. The access is
    /// [`ReadBeforeWait`](crate::Access::ReadBeforeWait).
    pub w: [View<B, bf16>; 2],
    /// `[outputs]` each, read: added.
    pub biases: [Option<View<B, f32>>; 2],
    /// `[rows, outputs]`, written.
    pub y: View<B, bf16>,
    /// The weights of the next launch, as in [`SkinnyFprop`].
    pub prefetch: Option<TensorView<B>>,
    /// Number of rows, 1 to [`SkinnyFprop::MAX_ROWS`].
    pub rows: usize,
}

impl<B: Copy> SkinnyFprop<'_, B> {
    /// The maximum number of rows.
    pub const MAX_ROWS: usize = abi::SKINNY_MAX_ROWS as usize;

    /// Whether the kernel supports `shape`.
    pub fn supports(shape: GemmShape) -> bool {
        (1..=Self::MAX_ROWS).contains(&shape.rows) && shape.inputs.is_multiple_of(8)
    }

    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If there are no layers or more than three, a length does not match, or the kernel does not
    /// support the operands; see the module.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, layers, accumulate, prefetch, rows } = self;
        let is_bf16 = matches!(x, TensorView::Bf16(_));
        let form = if is_bf16 { SkinnyForm::Bf16 } else { SkinnyForm::F32 };
        let layers = layers.iter().map(|&SkinnyLayer { w, bias, y }| Layer {
            w,
            bias,
            y: Some(Pointer::output(y, accumulate).any()),
            y_len: y.len(),
        });
        let layers = layers.collect();
        Operands { form, x, layers, accumulate, prefetch, rows }.launch()
    }
}

impl<B: Copy> SkinnySwiGlu<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or the kernel does not support the operands; see the module.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w: [w0, w1], biases: [bias0, bias1], y, prefetch, rows } = self;
        let y_len = y.len();
        let gate = Layer { w: w0, bias: bias0, y: Some(Pointer::write(y).any()), y_len };
        let layers = vec![gate, Layer { w: w1, bias: bias1, y: None, y_len }];
        let (form, x, accumulate) = (SkinnyForm::SwiGlu, x.into(), false);
        Operands { form, x, layers, accumulate, prefetch, rows }.launch()
    }
}

/// The operands of a launch.
struct Operands<B> {
    form: SkinnyForm,
    x: TensorView<B>,
    layers: Vec<Layer<B>>,
    accumulate: bool,
    prefetch: Option<TensorView<B>>,
    rows: usize,
}

/// A weight with its bias and output. With SwiGLU, the second one has no output of its own.
struct Layer<B> {
    w: View<B, bf16>,
    bias: Option<View<B, f32>>,
    y: Option<Pointer<B, Any>>,
    y_len: usize,
}

impl<B: Copy> Operands<B> {
    fn launch(self) -> Result<Launch<B>, KernelError> {
        let check = Check(SKINNY.name);
        let (inputs, outputs) = self.check(check)?;
        let Self { form, x, layers, accumulate, prefetch, rows } = self;
        let mut layers = layers.into_iter().map(|Layer { w, bias, y, .. }| {
            let (w, bias) = (Pointer::read(w).before_wait(), Pointer::read_optional(bias));
            (w, bias, y.unwrap_or(Pointer::null()))
        });
        let mut layer =
            || layers.next().unwrap_or((Pointer::null(), Pointer::null(), Pointer::null()));
        let ((w0, bias0, y0), (w1, bias1, y1), (w2, bias2, y2)) = (layer(), layer(), layer());
        let (prefetch, prefetch_bytes) = prefetch.map_or((Pointer::null(), 0), prefetched);
        let arguments = abi::SkinnyParameters::<ArgumentTypes<B>> {
            x: x.pointer(),
            w0,
            bias0,
            y0,
            w1,
            bias1,
            y1,
            w2,
            bias2,
            y2,
            prefetch,
            prefetch_bytes,
            rows: rows as u32,
            inputs,
            outputs0: outputs[0],
            outputs1: outputs[1],
            outputs2: outputs[2],
            accumulate,
        };
        let problem = Problem::Skinny(SkinnyProblem { outputs, form });
        Ok(Launch { kernel: &SKINNY, problem, arguments: arguments.into_arguments() })
    }

    /// Checks all lengths and returns the inputs, and the outputs of each layer.
    fn check(&self, check: Check) -> Result<(u32, [u32; abi::SKINNY_MAX_LAYERS]), KernelError> {
        let Self { form, x, layers, rows, .. } = self;
        let rule = "rows must be 1 to 8";
        check.rule((1..=SkinnyFprop::<B>::MAX_ROWS).contains(rows), rule, *rows)?;
        let rule = "rows must divide x, and inputs must be a multiple of 8";
        let inputs = x.len() / rows;
        let holds = x.len().is_multiple_of(*rows) && inputs.is_multiple_of(8);
        check.rule(holds, rule, [*rows, x.len()])?;
        let rule = "a launch has one to three layers";
        let fits = (1..=abi::SKINNY_MAX_LAYERS).contains(&layers.len());
        check.rule(fits, rule, layers.len())?;
        let dtype = x.dtype();
        let expected = if *form == SkinnyForm::F32 { DType::F32 } else { DType::Bf16 };
        if dtype != expected {
            let help = "x must be f32 or bf16";
            let (kernel, compute) = (check.0, DType::Bf16);
            return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
        }
        let rule = "x and weights must start at multiples of 16 bytes";
        let start = x.byte_range().start;
        check.rule(start.is_multiple_of(16), rule, start)?;
        let mut sizes = [0; abi::SKINNY_MAX_LAYERS];
        for (size, Layer { w, bias, y_len, .. }) in sizes.iter_mut().zip(layers) {
            let outputs = y_len / rows;
            check.elements("y", *y_len, outputs * rows)?;
            let elements = check.product("outputs × inputs", &[outputs, inputs])?;
            check.length("w", *w, elements)?;
            check.rule(w.is_aligned(16), rule, w.byte_range().start)?;
            if let Some(bias) = bias {
                check.length("bias", *bias, outputs)?;
            }
            *size = check.at_most("outputs", outputs, MAX_EXTENT)?;
        }
        Ok((check.at_most("inputs", inputs, MAX_EXTENT)?, sizes))
    }
}
