//! Linear layers of one row. Layers that read the same input share a launch, which also computes
//! the norm of the input, adds bias or residual, and computes the LoRA products that read the
//! input.
//!
//! A decode step is so short that dependent launches cost as much as reading the weights.

use retrograph_kernels::ops::{GatedGemv, Gemv, GemvLayer, GroupedGemv, NormPrologue, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use super::activation::Input;
use super::lora::{Lora, SavedIn};
use crate::error::Result;

/// A layer of a decode step: `y = x·Wᵀ + bias`, and its LoRA update.
#[derive(Clone, Copy, Debug)]
pub(super) struct GemvCall<'a> {
    pub(super) weight: TensorView<BufferId>,
    pub(super) lora: Option<&'a Lora>,
    pub(super) bias: Option<Slice<f32>>,
    pub(super) y: Slice<f32>,
}

impl GemvCall<'_> {
    fn part(&self) -> GemvLayer<BufferId> {
        GemvLayer { w: self.weight, bias: self.bias, y: self.y }
    }
}

/// Appends at most three layers with their LoRA updates. Returns the tensors saved for the
/// gradients of the updates.
pub(super) fn forward(
    builder: &mut Builder,
    input: Input,
    calls: &[GemvCall<'_>],
) -> Result<Vec<Option<SavedIn<f32>>>> {
    let updates = project(builder, input, calls)?;
    for (call, update) in calls.iter().zip(&updates) {
        let Some((lora, update)) = call.lora.zip(*update) else { continue };
        let (x, w, bias, y, alpha) = (update.t, lora.b.value, None, call.y, lora.scale);
        builder.launch(Gemv { x, w, bias, y, alpha, accumulate: true }.launch())?;
    }
    Ok(updates)
}

/// Appends everything that reads the input: `y = x·Wᵀ + bias` and the first product of each LoRA
/// update. The caller appends the second.
pub(super) fn project(
    builder: &mut Builder,
    input: Input,
    calls: &[GemvCall<'_>],
) -> Result<Vec<Option<SavedIn<f32>>>> {
    let Input { x, norm, mut prefetch, .. } = input;
    let x = x.f32()?;
    let (mut updates, mut lows) = (Vec::new(), Vec::new());
    for call in calls {
        let Some(lora) = call.lora else {
            updates.push(None);
            continue;
        };
        let (a, t) = (lora.a.value, builder.transient("low_rank", lora.rank));
        let x = lora.drop_out(builder, x)?;
        if lora.dropout.is_some() {
            // Each update drops other elements, so their inputs differ.
            let (bias, alpha, accumulate) = (None, 1.0, false);
            builder.launch(Gemv { x, w: a, bias, y: t, alpha, accumulate }.launch())?;
        } else {
            lows.push([a, t]);
        }
        updates.push(Some(SavedIn { x, t }));
    }
    // A launch reads weights of one dtype, and f32 only in a launch without NF4.
    if calls.iter().any(|call| matches!(call.weight, TensorView::Nf4(_))) && !lows.is_empty() {
        let part = |[a, y]: [Slice<f32>; 2]| GemvLayer { w: a.into(), bias: None, y };
        let parts: Vec<_> = lows.drain(..).map(part).collect();
        builder.launch(
            GroupedGemv { x, norm, layers: &parts, lora_a: &[], prefetch: None }.launch(),
        )?;
    }
    for same_dtype in calls.chunk_by(|left, right| left.weight.dtype() == right.weight.dtype()) {
        let parts: Vec<_> = same_dtype.iter().map(GemvCall::part).collect();
        let (lora_a, prefetch) = (&*std::mem::take(&mut lows), prefetch.take());
        builder.launch(GroupedGemv { x, norm, layers: &parts, lora_a, prefetch }.launch())?;
    }
    Ok(updates)
}

/// Whether [`gated`] can compute gate and up, which have these weights, and may have LoRA updates:
/// without updates, which come before the SiLU, and with weights of one dtype.
pub(super) fn can_be_gated([gate, up]: [TensorView<BufferId>; 2], has_updates: [bool; 2]) -> bool {
    has_updates == [false; 2] && gate.dtype() == up.dtype()
}

/// Appends `silu(gate(x)) · up(x)` as one launch, which also computes the norm of x. Both calls
/// name the same output.
pub(super) fn gated(
    builder: &mut Builder,
    input: Input,
    norm: NormPrologue<BufferId>,
    [gate, up]: [GemvCall<'_>; 2],
) -> Result<()> {
    let Input { x, prefetch, .. } = input;
    let (w, biases, y) = ([gate.weight, up.weight], [gate.bias, up.bias], gate.y);
    builder.launch(GatedGemv { x: x.f32()?, norm, w, biases, y, prefetch }.launch())
}
