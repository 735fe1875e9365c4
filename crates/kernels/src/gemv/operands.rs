//! The operands of a launch of matrix-vector products, and their checks.

use std::array;
use std::ops::Range;

use retrograph_kernel_abi::Any;
use retrograph_kernel_abi::gemv::{self as abi, GemvFlags, GemvForm, GemvLora, GemvParameters};
use retrograph_kernel_abi::nf4::Nf4Scales;

use super::kernels::{GEMV, GEMV_BF16, GEMV_NF4};
use super::problem::GemvProblem;
use crate::checks::Check;
use crate::geometry::MAX_EXTENT;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, KernelError, Launch, Problem, TensorView, View};

/// An RMSNorm of x before the products: x is multiplied by `gamma ÷ sqrt(mean(x²) + eps)`.
///
/// The kernel sums `w · x · gamma` and divides at the end, so these products must stay in the range
/// of f32. The squares may overflow or underflow.
#[derive(Clone, Copy, Debug)]
pub struct NormPrologue<B> {
    /// `[inputs]`, read.
    pub gamma: View<B, f32>,
    /// Added to the mean of squares; finite and not negative.
    pub eps: f32,
}

/// One layer of a [`GroupedGemv`](crate::gemv::GroupedGemv).
#[derive(Clone, Copy, Debug)]
pub struct GemvLayer<B> {
    /// `[outputs, inputs]`, read.
    pub w: TensorView<B>,
    /// `[outputs]`, read: added.
    pub bias: Option<View<B, f32>>,
    /// `[outputs]`, written.
    pub y: View<B, f32>,
}

/// The most layers of a launch, and the most LoRA matrices.
pub const GEMV_MAX_LAYERS: usize = abi::MAX_LAYERS;

/// The operands of a launch. The two layers of the gated form have the same y.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a, B> {
    pub(super) x: View<B, f32>,
    pub(super) norm: Option<NormPrologue<B>>,
    pub(super) layers: &'a [GemvLayer<B>],
    pub(super) lora_a: &'a [[View<B, f32>; 2]],
    pub(super) form: GemvForm,
    pub(super) alpha: f32,
    pub(super) accumulate: bool,
    pub(super) prefetch: Option<TensorView<B>>,
}

/// Outputs of each layer and each LoRA matrix.
type Outputs = ([u32; GEMV_MAX_LAYERS], [u32; GEMV_MAX_LAYERS]);

impl<'a, B: Copy> Operands<'a, B> {
    /// Layers without norm, LoRA or prefetch.
    pub(super) fn plain(x: View<B, f32>, layers: &'a [GemvLayer<B>]) -> Self {
        let (norm, form, alpha, accumulate) = (None, GemvForm::Plain, 1.0, false);
        Self { x, norm, layers, lora_a: &[], form, alpha, accumulate, prefetch: None }
    }

    pub(super) fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, lora_a, form, alpha, accumulate, prefetch, .. } = self;
        let kernel = match self.dtype() {
            DType::Bf16 => &GEMV_BF16,
            DType::Nf4 => &GEMV_NF4,
            _ => &GEMV,
        };
        let check = Check(kernel.name);
        let inputs = check.at_most("inputs", x.len(), MAX_EXTENT)?;
        let (outputs, lora_ranks) = self.check(check)?;
        let vectorized = self.is_vectorized();
        let rule = "x, gamma and matrices in f32 must start at multiples of 16 bytes if w is NF4";
        let holds = vectorized || self.dtype() != DType::Nf4;
        check.rule(holds, rule, ())?;
        let (prefetch, prefetch_bytes) = prefetch.map_or((Pointer::null(), 0), prefetched);
        let parameters = GemvParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            gamma: Pointer::read_optional(norm.map(|norm| norm.gamma)),
            layers: array::from_fn(|at| self.layer(at, outputs[at])),
            lora: array::from_fn(|at| GemvLora {
                a: Pointer::read_optional(lora_a.get(at).map(|[a, _]| *a)).before_wait(),
                t: Pointer::write_optional(lora_a.get(at).map(|[_, t]| *t)),
                rank: lora_ranks[at],
            }),
            prefetch,
            prefetch_bytes,
            inputs,
            eps: norm.map_or(0.0, |norm| norm.eps),
            alpha,
            flags: GemvFlags::NONE
                .with(GemvFlags::ACCUMULATE, accumulate)
                .with(GemvFlags::VECTORIZED, vectorized),
        };
        let arguments = parameters.into_arguments(self.dtype());
        let problem = Problem::Gemv(GemvProblem { inputs, outputs, lora_ranks, form });
        Ok(Launch { kernel, problem, arguments })
    }

    /// The type of the weights.
    fn dtype(&self) -> DType {
        self.layers.first().map_or(DType::F32, |layer| layer.w.dtype())
    }

    /// Whether every operand can be read in aligned vectors.
    fn is_vectorized(&self) -> bool {
        let Self { x, norm, layers, lora_a, .. } = self;
        x.is_aligned(16)
            && x.len().is_multiple_of(abi::vector_len(self.dtype()) as usize)
            && layers.iter().all(|layer| layer.w.is_vectorizable(&[x.len()]))
            && norm.is_none_or(|norm| norm.gamma.is_aligned(16))
            && lora_a.iter().all(|[a, _]| a.is_aligned(16))
    }

    /// Checks all lengths and returns the outputs of each matrix.
    fn check(self, check: Check) -> Result<Outputs, KernelError> {
        let Self { x, norm, layers, lora_a, .. } = self;
        let counts = [layers.len(), lora_a.len()];
        let fits = (1..=GEMV_MAX_LAYERS).contains(&counts[0]) && counts[1] <= GEMV_MAX_LAYERS;
        check.rule(
            fits,
            "a launch has one to three layers and up to three LoRA matrices",
            counts,
        )?;
        let rule = "a launch with layers in NF4 has no LoRA matrices";
        check.rule(lora_a.is_empty() || self.dtype() != DType::Nf4, rule, counts)?;
        if let Some(NormPrologue { gamma, eps }) = norm {
            check.length("gamma", gamma, x.len())?;
            check.not_negative("eps", eps)?;
            check.rule(!x.is_empty(), "a norm needs at least one element", x.len())?;
        }
        let (mut outputs, mut lora_ranks) = ([0; GEMV_MAX_LAYERS], [0; GEMV_MAX_LAYERS]);
        for (size, GemvLayer { w, bias, y }) in outputs.iter_mut().zip(layers) {
            *size = check.at_most("outputs", y.len(), MAX_EXTENT)?;
            let elements = check.product("outputs × inputs", &[y.len(), x.len()])?;
            check.elements("w", w.len(), elements)?;
            if let Some(nf4) = w.nf4() {
                nf4.check(check, &[x.len()])?;
            }
            let rule = "all layers of a launch must have weights of one type";
            check.rule(w.dtype() == self.dtype(), rule, ())?;
            if let Some(bias) = bias {
                check.length("bias", *bias, y.len())?;
            }
        }
        for (size, [a, t]) in lora_ranks.iter_mut().zip(lora_a) {
            *size = check.at_most("the rank of a LoRA matrix", t.len(), MAX_EXTENT)?;
            let elements = check.product("rank × inputs", &[t.len(), x.len()])?;
            check.length("a LoRA matrix", *a, elements)?;
        }
        Ok((outputs, lora_ranks))
    }

    /// The parameters of the layer at index `at` with `outputs` outputs, or null pointers.
    fn layer(&self, at: usize, outputs: u32) -> abi::GemvLayer<ArgumentTypes<B>> {
        let layer = self.layers.get(at);
        // The second layer of the gated form has no output of its own.
        let writes = self.form != GemvForm::Gated || at == 0;
        let y = layer.filter(|_| writes).map(|layer| Pointer::output(layer.y, self.accumulate));
        let w = layer.map(|layer| layer.w.pointer().before_wait());
        let scales = layer.and_then(|layer| layer.w.nf4()).map(|nf4| nf4.scale_pointers());
        let scales = scales.map_or_else(null_scales, |scales| Nf4Scales {
            absmax: scales.absmax.before_wait(),
            nested: scales.nested.before_wait(),
            map: scales.map.before_wait(),
            offset: scales.offset.before_wait(),
        });
        abi::GemvLayer {
            w: w.unwrap_or(Pointer::null()),
            scales: (self.dtype() == DType::Nf4).then_some(scales),
            bias: Pointer::read_optional(layer.and_then(|layer| layer.bias)),
            y: y.unwrap_or(Pointer::null()),
            outputs,
        }
    }
}

/// The scales of an absent layer.
fn null_scales<B>() -> Nf4Scales<ArgumentTypes<B>> {
    let [nested, map, offset] = [(); 3].map(|()| Pointer::null());
    Nf4Scales { absmax: Pointer::null(), nested, map, offset }
}

/// The start of `weights` and the number of bytes to prefetch: 0 if they are not aligned. The
/// pointer has an empty range, since prefetches access no bytes of it.
pub(crate) fn prefetched<B: Copy>(weights: TensorView<B>) -> (Pointer<B, Any>, u32) {
    let Range { start, end } = weights.byte_range();
    if !start.is_multiple_of(16) {
        return (Pointer::null(), 0);
    }
    (weights.pointer().without_access(), u32::try_from(end - start).unwrap_or(u32::MAX))
}
