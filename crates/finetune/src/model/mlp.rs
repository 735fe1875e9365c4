//! The gated MLP: `down(silu(gate(x)) · up(x))`.

use retrograph_kernels::ops::{SwiGlu, SwiGluBackward};
use retrograph_runtime::Slice;

use super::builder::Builder;
use super::linear::{self, Linear};
use crate::error::Result;
use crate::parameters::layer_name;

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    gate: (Slice<f32>, Linear, linear::Saved),
    up: (Slice<f32>, Linear, linear::Saved),
    down: (Linear, linear::Saved),
}

/// Appends the MLP of `layer`, and adds it to `residual`.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    (x, residual): (Slice<f32>, Slice<f32>),
) -> Result<(Slice<f32>, Saved)> {
    let (hidden, inner) = (builder.config.model.hidden, builder.config.model.intermediate);
    let linear = |builder: &mut Builder, part: &str, shape| {
        builder.scope(format!("layer {layer}/{part}"));
        Linear::new(builder, &layer_name(layer, &format!("mlp.{part}_proj")), shape)
    };
    let project = |builder: &mut Builder, part: &str, x, shape| -> Result<_> {
        let linear = linear(builder, part, shape);
        let (y, saved) = linear.forward(builder, x, "out")?;
        Ok((y, linear, saved))
    };
    let gate = project(builder, "gate", x, [hidden, inner])?;
    let up = project(builder, "up", x, [hidden, inner])?;
    builder.scope(format!("layer {layer}/swiglu"));
    let out = builder.transient("out", builder.rows() * inner);
    builder.launch(SwiGlu { gate: gate.0, up: up.0, out }.launch())?;
    let down = linear(builder, "down", [inner, hidden]);
    let (y, down_saved) =
        down.forward_onto(builder, out, (residual, &format!("layer {layer}/mlp residual")))?;
    Ok((y, Saved { gate, up, down: (down, down_saved) }))
}

/// Appends the gradient of the input of the MLP of `layer`, and those of its weights.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    saved: Saved,
    grad_out: Slice<f32>,
) -> Result<Slice<f32>> {
    let Saved { gate, up, down } = saved;
    builder.scope(format!("layer {layer}/down backward"));
    let grad_inner = down.0.backward(builder, down.1, grad_out)?;
    builder.scope(format!("layer {layer}/swiglu backward"));
    let grad_gate = builder.transient("grad_gate", grad_inner.len());
    let grad_up = builder.transient("grad_up", grad_inner.len());
    builder.launch(
        SwiGluBackward { gate: gate.0, up: up.0, grad_out: grad_inner, grad_gate, grad_up }
            .launch(),
    )?;
    builder.scope(format!("layer {layer}/gate backward"));
    let from_gate = gate.1.backward(builder, gate.2, grad_gate)?;
    builder.scope(format!("layer {layer}/up backward"));
    let from_up = up.1.backward(builder, up.2, grad_up)?;
    builder.scope(format!("layer {layer}/mlp backward"));
    builder.sum(from_gate, from_up)
}
