//! Updates of larger ranks, as ordinary matrix products.

use retrograph_kernels::ops::{Dgrad, Fprop, GemmShape, Wgrad};
use retrograph_runtime::Slice;

use super::update::{Lora, LoraBackward, Saved};
use crate::error::Result;
use crate::model::builder::Builder;

/// Returns the shapes of `t = x·Aᵀ` and of `t·Bᵀ`.
fn shapes(lora: &Lora) -> (GemmShape, GemmShape) {
    let down = GemmShape { outputs: lora.rank, ..lora.shape };
    let up = GemmShape { inputs: lora.rank, ..lora.shape };
    (down, up)
}

/// Appends `t = x·Aᵀ`.
pub(super) fn down(builder: &mut Builder, lora: &Lora, x: Slice<f32>) -> Result<Slice<f32>> {
    let (shape, _) = shapes(lora);
    let y = builder.transient("low_rank", shape.rows * shape.outputs);
    let w = lora.a.value;
    let product = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
    builder.launch(product.launch_in(lora.compute))?;
    Ok(y)
}

/// Appends `y += s·t·Bᵀ`.
pub(super) fn up(builder: &mut Builder, lora: &Lora, [t, y]: [Slice<f32>; 2]) -> Result<()> {
    let (_, shape) = shapes(lora);
    let (w, alpha) = (lora.b.value, lora.scale);
    let product = Fprop { x: t, w, bias: None, y, shape, alpha, accumulate: true };
    builder.launch(product.launch_in(lora.compute))
}

/// Appends the gradients of both matrices, and adds to the gradient of the input.
pub(super) fn backward(builder: &mut Builder, update: &LoraBackward<'_>) -> Result<()> {
    let LoraBackward { ref lora, saved: Saved { x, t }, grad_out, grad_input, .. } = *update;
    let (down, up) = shapes(lora);
    let (w, alpha, compute) = (lora.b.value, lora.scale, lora.compute);
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
    let w = lora.a.value;
    let dgrad = |grad_input, accumulate| {
        let product = Dgrad { grad_out, w, grad_input, shape: down, alpha: 1.0, accumulate };
        product.launch_in(compute)
    };
    let Some(site) = lora.dropout else { return builder.launch(dgrad(grad_input, true)) };
    let dropped = builder.transient("grad_dropped", grad_input.len());
    builder.launch(dgrad(dropped, false))?;
    builder.drop_out(site, [dropped, grad_input], true)
}
