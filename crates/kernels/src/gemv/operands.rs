//! The operands of a launch of matrix-vector products, and their checks.

use std::ops::Range;

use super::{
    GEMV, GEMV_BF16, GEMV_MAX_LAYERS, GEMV_NF4, GemvForm, GemvLayer, GemvProblem, NormPrologue,
};
use crate::checks::Check;
use crate::{Argument, DType, Kernel, KernelError, Launch, Problem, TensorView, View};

/// The largest extent, so that the end of a run that starts inside has an index of 32 bits.
const MAX_EXTENT: usize = 0x7fff_ffff;

/// Bits of the parameter `flags`.
mod flag {
    /// y is added to.
    pub(super) const ACCUMULATE: u32 = 1;
    /// x and w are read in aligned vectors.
    pub(super) const VECTORIZED: u32 = 2;
}

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
        let Self { x, norm, layers, lora_a, form, alpha, accumulate, prefetch } = self;
        let kernel = match self.dtype() {
            DType::Bf16 => &GEMV_BF16,
            DType::Nf4 => &GEMV_NF4,
            _ => &GEMV,
        };
        let check = Check(kernel.name);
        let inputs = check.at_most("inputs", x.len(), MAX_EXTENT)?;
        let (outputs, lora_ranks) = self.check(check, kernel)?;
        let vectorized = self.is_vectorized();
        let rule = "x, gamma and matrices in f32 must start at multiples of 16 bytes if w is NF4";
        let holds = vectorized || self.dtype() != DType::Nf4;
        check.rule(holds, rule, (x.byte_range().start, x.len()))?;
        let gamma = Argument::read_optional(norm.map(|norm| norm.gamma));
        let mut arguments = vec![Argument::read(x), gamma];
        for at in 0..GEMV_MAX_LAYERS {
            self.push_layer(&mut arguments, layers.get(at), at);
        }
        for at in 0..GEMV_MAX_LAYERS {
            let pair = lora_a.get(at);
            let pair = pair.map(|[a, t]| [Argument::read(*a).before_wait(), Argument::write(*t)]);
            arguments.extend(pair.unwrap_or([Argument::Null, Argument::Null]));
        }
        let (prefetch, prefetch_bytes) = prefetch.map_or((Argument::Null, 0), prefetched);
        arguments.extend([prefetch, Argument::U32(inputs)]);
        arguments.extend(outputs.into_iter().chain(lora_ranks).map(Argument::U32));
        let eps = norm.map_or(0.0, |norm| norm.eps);
        arguments.extend([eps, alpha].map(Argument::f32));
        let flags = if accumulate { flag::ACCUMULATE } else { 0 }
            | if vectorized { flag::VECTORIZED } else { 0 };
        arguments.extend([flags, prefetch_bytes].map(Argument::U32));
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
        let vector = if self.dtype() == DType::F32 { 4 } else { 8 };
        x.is_aligned(16)
            && x.len().is_multiple_of(vector)
            && layers.iter().all(|layer| layer.w.is_vectorizable(&[x.len()]))
            && norm.is_none_or(|norm| norm.gamma.is_aligned(16))
            && lora_a.iter().all(|[a, _]| a.is_aligned(16))
    }

    /// Checks all lengths and returns the outputs of each matrix.
    fn check(self, check: Check, kernel: &Kernel) -> Result<Outputs, KernelError> {
        let Self { x, norm, layers, lora_a, .. } = self;
        let counts = (layers.len(), lora_a.len());
        let fits = (1..=GEMV_MAX_LAYERS).contains(&counts.0) && counts.1 <= GEMV_MAX_LAYERS;
        check.rule(
            fits,
            "a launch has one to three layers and up to three LoRA matrices",
            counts,
        )?;
        let rule = "a launch with layers in NF4 has no LoRA matrices";
        check.rule(lora_a.is_empty() || self.dtype() != DType::Nf4, rule, counts)?;
        if let Some(NormPrologue { gamma, eps }) = norm {
            check.length("gamma", gamma, x.len())?;
            check.constant("eps", eps, (eps >= 0.0, "not negative"))?;
            check.rule(!x.is_empty(), "a norm needs at least one element", (x.len(), 1))?;
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
            let same = w.dtype() == self.dtype();
            check.rule(same, rule, (layers.len(), kernel.entries.len()))?;
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

    /// Matrix, bias, output and scales of the layer at index `at`, or as many nulls.
    fn push_layer(
        &self,
        arguments: &mut Vec<Argument<B>>,
        layer: Option<&GemvLayer<B>>,
        at: usize,
    ) {
        let scales = if self.dtype() == DType::Nf4 { 4 } else { 0 };
        let Some(GemvLayer { w, bias, y }) = layer else {
            arguments.extend((0..3 + scales).map(|_| Argument::Null));
            return;
        };
        // The second layer of the gated form has no output of its own.
        let writes = self.form != GemvForm::Gated || at == 0;
        let y = if writes { Argument::output(*y, self.accumulate) } else { Argument::Null };
        arguments.extend([w.argument().before_wait(), Argument::read_optional(*bias), y]);
        if let Some(nf4) = w.nf4() {
            arguments.extend(nf4.scale_arguments().map(Argument::before_wait));
        }
    }
}

/// The start of `weights` and the number of bytes to prefetch: 0 if they are not aligned. The
/// argument has an empty range, since prefetches access no bytes of it.
fn prefetched<B: Copy>(weights: TensorView<B>) -> (Argument<B>, u32) {
    let Argument::Buffer(mut buffer) = weights.argument() else { return (Argument::Null, 0) };
    let Range { start, end } = buffer.bytes;
    if !start.is_multiple_of(16) {
        return (Argument::Null, 0);
    }
    buffer.bytes = start..start;
    (Argument::Buffer(buffer), u32::try_from(end - start).unwrap_or(u32::MAX))
}
