//! Linear layers of one token: as many in a launch as read the same input, with the norm in front
//! of them, the bias or residual behind them, and the low-rank products that read it, too.
//!
//! A token is over so quickly that what counts beside the bytes of the weights is how many launches
//! wait for each other.

use retrograph_kernels::ops::{DType, GatedGemv, Gemv, GemvLayer, GroupedGemv, TensorView};
use retrograph_runtime::Slice;

use super::activation::Activation;
use super::builder::Builder;
use super::linear::{Linear, LowRank};
use crate::error::Result;

/// A layer, what is added to it, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) layer: &'a Linear,
    pub(super) bias: Option<Slice<f32>>,
    pub(super) y: Slice<f32>,
}

impl Part<'_> {
    /// How the weights are stored.
    fn storage(&self) -> DType {
        self.layer.weight.value.stored().dtype()
    }
}

/// Appends `y = linear(x)` of each part, at most three. What the gradients of low-rank updates need
/// comes back.
pub(super) fn forward(
    builder: &mut Builder,
    x: Activation,
    parts: &[Part<'_>],
) -> Result<Vec<Option<LowRank>>> {
    let low_ranks = project(builder, x, parts)?;
    for (part, low_rank) in parts.iter().zip(&low_ranks) {
        let (Some(lora), Some(LowRank { t, .. })) = (part.layer.lora, low_rank) else { continue };
        let (w, bias, y, alpha) = (lora.b.floats(), None, part.y, lora.scale);
        builder.launch(Gemv { x: *t, w, bias, y, alpha, accumulate: true }.launch())?;
    }
    Ok(low_ranks)
}

/// Appends all that reads `x`: `y = x·Wᵀ + b` of each part, and what is between the matrices of its
/// low-rank update, the second of which is left to others.
pub(super) fn project(
    builder: &mut Builder,
    x: Activation,
    parts: &[Part<'_>],
) -> Result<Vec<Option<LowRank>>> {
    let (input, norm) = (x.floats(), x.norm());
    let (mut low_ranks, mut lows) = (Vec::new(), Vec::new());
    for part in parts {
        low_ranks.push(match part.layer.lora {
            None => None,
            Some(lora) => {
                let (a, t) = (lora.a.floats(), builder.transient("low_rank", lora.rank));
                let x = lora.drop_out(builder, input)?;
                if lora.dropout.is_some() {
                    // It reads less than the others do.
                    let (bias, alpha, accumulate) = (None, 1.0, false);
                    builder.launch(Gemv { x, w: a, bias, y: t, alpha, accumulate }.launch())?;
                } else {
                    lows.push([a, t]);
                }
                Some(LowRank { x, t })
            }
        });
    }
    let described = |part: &Part<'_>| {
        let (w, bias, y) = (part.layer.weight.value.stored(), part.bias, part.y);
        GemvLayer { w, bias, y }
    };
    // A launch reads weights of one kind, and f32 not beside NF4.
    if parts.iter().any(|part| matches!(part.layer.weight.value.stored(), TensorView::Nf4(_))) {
        let of = |[a, y]: &[Slice<f32>; 2]| GemvLayer { w: (*a).into(), bias: None, y: *y };
        let parts: Vec<_> = lows.drain(..).map(|low| of(&low)).collect();
        if !parts.is_empty() {
            let next = None;
            builder.launch(
                GroupedGemv { x: input, norm, layers: &parts, lora_a: &[], prefetch: next }
                    .launch(),
            )?;
        }
    }
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let alike = rest.iter().take_while(|part| part.storage() == first.storage()).count();
        let (these, others) = rest.split_at(alike);
        let parts: Vec<_> = these.iter().map(described).collect();
        let lows = std::mem::take(&mut lows);
        let next = builder.upcoming.take();
        builder.launch(
            GroupedGemv { x: input, norm, layers: &parts, lora_a: &lows, prefetch: next }.launch(),
        )?;
        rest = others;
    }
    Ok(low_ranks)
}

/// Appends `silu(gate(x)) · up(x)` as one launch, where the layers are of one token, have no update
/// between product and SiLU, and nothing is trained.
pub(super) fn gated(
    builder: &mut Builder,
    layers: [&Linear; 2],
    x: Activation,
) -> Result<Option<Slice<f32>>> {
    let weights = layers.map(|layer| layer.weight.value.stored());
    let alike = weights[0].dtype() == weights[1].dtype();
    let plain = layers.iter().all(|layer| layer.lora.is_none()) && alike;
    let Some(norm) = x.norm().filter(|_| plain) else { return Ok(None) };
    let y = builder.transient("out", layers[0].shape.outputs);
    let biases = layers.map(|layer| layer.bias.map(|bias| bias.floats()));
    let next = builder.upcoming.take();
    builder.launch(
        GatedGemv { x: x.floats(), norm, w: weights, biases, y, prefetch: next }.launch(),
    )?;
    Ok(Some(y))
}
