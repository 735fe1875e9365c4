//! Updates of greater ranks: products as those with the weights are.

use retrograph_kernels::ops::{Dgrad, Dropout, Fprop, GemmShape, Wgrad};
use retrograph_runtime::Slice;

use super::{Given, Lora, LowRank};
use crate::error::Result;
use crate::model::builder::{Builder, Randomness};
use crate::model::linear::Linear;

/// The shapes of `t = x·Aᵀ` and of `t·Bᵀ`.
fn shapes((layer, lora): (&Linear, &Lora)) -> (GemmShape, GemmShape) {
    let down = GemmShape { outputs: lora.rank, ..layer.shape };
    let up = GemmShape { inputs: lora.rank, ..layer.shape };
    (down, up)
}

/// Appends `t = x·Aᵀ`.
pub(super) fn down(
    builder: &mut Builder,
    (layer, lora): (&Linear, &Lora),
    x: Slice<f32>,
) -> Result<Slice<f32>> {
    let (shape, _) = shapes((layer, lora));
    let y = builder.transient("low_rank", shape.rows * shape.outputs);
    let (w, compute) = (lora.a.floats(), builder.compute());
    let product = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
    builder.launch(product.launch_in(compute))?;
    Ok(y)
}

/// Appends `y += s·t·Bᵀ`.
pub(super) fn up(
    builder: &mut Builder,
    (layer, lora): (&Linear, &Lora),
    [t, y]: [Slice<f32>; 2],
) -> Result<()> {
    let (_, shape) = shapes((layer, lora));
    let (w, alpha, compute) = (lora.b.floats(), lora.scale, builder.compute());
    let product = Fprop { x: t, w, bias: None, y, shape, alpha, accumulate: true };
    builder.launch(product.launch_in(compute))
}

/// Appends the gradients of both matrices, and what the update adds to that of the input.
pub(super) fn backward(builder: &mut Builder, given: &Given<'_>, lora: &Lora) -> Result<()> {
    let Given { layer, low_rank: LowRank { x, t }, grad_out, grad_input, .. } = *given;
    let (down, up) = shapes((layer, lora));
    let (w, alpha, compute) = (lora.b.floats(), lora.scale, builder.compute());
    if let Some(grad_weight) = lora.b.grad {
        let accumulate = builder.accumulates();
        let wgrad = Wgrad { grad_out, x: t, grad_weight, shape: up, alpha, accumulate };
        builder.launch(wgrad.launch_in(compute))?;
    }
    let grad_t = builder.transient("grad_low_rank", t.len());
    let dgrad = Dgrad { grad_out, w, grad_input: grad_t, shape: up, alpha, accumulate: false };
    builder.launch(dgrad.launch_in(compute))?;
    let grad_out = grad_t;
    if let Some(grad_weight) = lora.a.grad {
        let (alpha, accumulate) = (1.0, builder.accumulates());
        let wgrad = Wgrad { grad_out, x, grad_weight, shape: down, alpha, accumulate };
        builder.launch(wgrad.launch_in(compute))?;
    }
    let w = lora.a.floats();
    let dgrad = |grad_input, accumulate| {
        let product = Dgrad { grad_out, w, grad_input, shape: down, alpha: 1.0, accumulate };
        product.launch_in(compute)
    };
    let Some((probability, Randomness { step, seed, stream })) = lora.dropout else {
        return builder.launch(dgrad(grad_input, true));
    };
    let x = builder.transient("grad_dropped", grad_input.len());
    builder.launch(dgrad(x, false))?;
    let out = grad_input;
    let dropout = Dropout { x, out, step, probability, seed, sequence: stream, accumulate: true };
    builder.launch(dropout.launch())
}
