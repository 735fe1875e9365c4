//! Linear layers of a decode step of several sequences: few rows and bf16 weights. Layers that read
//! the same input share a launch, which also adds bias and residual.

use half::bf16;
use retrograph_kernels::ops::{DType, SkinnyFprop, SkinnyLayer, SkinnySwiGlu, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::Builder;
use super::activation::{Activation, Input, missing};
use super::gemv::GemvCall;
use super::linear::Linear;
use crate::error::Result;

/// Appends at most three layers of `rows` rows, without LoRA updates. If `accumulate`, their
/// results are added to y.
pub(super) fn forward(
    builder: &mut Builder,
    input: Input,
    calls: &[GemvCall<'_>],
    rows: usize,
    accumulate: bool,
) -> Result<()> {
    let Input { x, prefetch, .. } = input;
    let mut layers = Vec::with_capacity(calls.len());
    for &GemvCall { weight, bias, y, .. } in calls {
        layers.push(SkinnyLayer { w: bf16_weight(weight)?, bias, y });
    }
    let (x, layers) = (x.narrowest(), &*layers);
    builder.launch(SkinnyFprop { x, layers, accumulate, prefetch, rows }.launch())
}

/// Appends `silu(gate(x)) · up(x)` as one launch. The result is bf16.
pub(super) fn swiglu(
    builder: &mut Builder,
    input: Input,
    layers: [&Linear; 2],
) -> Result<Activation> {
    let Input { x, prefetch, .. } = input;
    let [gate, up] = layers.map(|layer| layer.weight.value);
    let (w, biases) = ([bf16_weight(gate)?, bf16_weight(up)?], layers.map(Linear::bias));
    let (rows, outputs) = (layers[0].rows(), layers[0].outputs());
    let inner = Activation::transient(builder, "inner", rows * outputs, DType::Bf16.into());
    let (x, y) = (x.bf16()?, inner.bf16()?);
    builder.launch(SkinnySwiGlu { x, w, biases, y, prefetch, rows }.launch())?;
    Ok(inner)
}

fn bf16_weight(weight: TensorView<BufferId>) -> Result<Slice<bf16>> {
    match weight {
        TensorView::Bf16(weight) => Ok(weight),
        _ => Err(missing(DType::Bf16).into()),
    }
}
