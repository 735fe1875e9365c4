//! The gated MLP: `down(silu(gate(x)) · up(x))`.

use retrograph_kernels::ops::{SwiGlu, SwiGluBackward, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Forms};
use super::builder::Builder;
use super::linear::{self, Linear};
use super::residual::Residual;
use super::{attention, head, vector};
use crate::error::Result;
use crate::parameters::layer_name;

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    gate: (Activation, Linear, linear::Saved),
    up: (Activation, Linear, linear::Saved),
    down: (Linear, linear::Saved),
    /// The form of what is between the projections, which is the largest of a layer.
    form: Forms,
}

/// The projection `part` of `layer`.
fn projection(builder: &Builder, layer: usize, part: &str) -> Linear {
    let (hidden, inner) = (builder.config.model.hidden, builder.config.model.intermediate);
    let shape = if part == "down" { [inner, hidden] } else { [hidden, inner] };
    let linear = Linear::new(builder, &layer_name(layer, &format!("mlp.{part}_proj")), shape);
    // Gate and up depend on the same values, forward and backward.
    Linear { beside: u32::from(part != "down"), ..linear }
}

/// In which forms the MLP of `layer` reads its input.
pub(super) fn forms(builder: &Builder, layer: usize) -> Forms {
    let [gate, up] = ["gate", "up"].map(|part| projection(builder, layer, part).forms(builder));
    gate.and(up)
}

/// In which forms the gradient of what the MLP of `layer` gives is read.
pub(super) fn grad_forms(builder: &Builder, layer: usize) -> Forms {
    projection(builder, layer, "down").forms(builder)
}

/// What the MLP of `layer` reads first, of each of two matrices.
pub(super) fn first_weights(builder: &Builder, layer: usize) -> [TensorView<BufferId>; 2] {
    ["gate", "up"].map(|part| projection(builder, layer, part).weight.value.stored())
}

/// What is read first behind the MLP of `layer`.
fn behind(builder: &Builder, layer: usize) -> TensorView<BufferId> {
    if layer + 1 < builder.config.model.layers {
        return attention::first_weight(builder, layer + 1);
    }
    head::projection(builder).value.stored()
}

/// Appends the MLP of `layer`, which is to be added to `residual`.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    (x, residual): (Activation, Slice<f32>),
) -> Result<(Residual, Option<Saved>)> {
    let [gate, up, down] = ["gate", "up", "down"].map(|part| projection(builder, layer, part));
    builder.scope(format!("layer {layer}/gate and up"));
    let alone = builder.cache.is_some() && builder.rows() == 1;
    builder.upcoming = alone.then(|| down.weight.value.stored());
    if let Some(inner) = vector::gated(builder, [&gate, &up], x)? {
        builder.scope(format!("layer {layer}/down"));
        builder.upcoming = alone.then(|| behind(builder, layer));
        return Ok((down.forward_onto(builder, inner.into(), residual)?.0, None));
    }
    let names = ["gate", "up"].map(|part| format!("layer {layer}/{part}"));
    let both = gate.rounds_output(builder) && up.rounds_output(builder);
    let rounded = both && down.rounds_grad_input(builder);
    let form = if rounded { Forms::BF16 } else { Forms::F32 };
    let [gate, up] = if rounded {
        let mut project = |linear: Linear, name: &str| -> Result<_> {
            builder.scope(name);
            let (y, saved) = linear.forward_rounded(builder, x, "out")?;
            Ok((y, linear, saved))
        };
        [project(gate, &names[0])?, project(up, &names[1])?]
    } else {
        let layers = [(&gate, &*names[0]), (&up, &*names[1])];
        let [left, right] = linear::forward_each(builder, layers, x)?;
        [(left.0.into(), gate, left.1), (right.0.into(), up, right.1)]
    };
    builder.scope(format!("layer {layer}/swiglu"));
    let (left, right) = (gate.0.stored(), up.0.stored());
    let inner = Activation::transient(builder, ("out", left.len()), down.forms(builder));
    builder.launch(SwiGlu { gate: left, up: right, out: inner.written() }.launch())?;
    builder.scope(format!("layer {layer}/down"));
    let (y, down_saved) = down.forward_onto(builder, inner, residual)?;
    Ok((y, Some(Saved { gate, up, down: (down, down_saved), form })))
}

/// Appends the gradients of the input of the MLP of `layer`, which are to be added, and those of
/// its weights.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    saved: Saved,
    grad_out: Activation,
) -> Result<[Slice<f32>; 2]> {
    let Saved { gate, up, down, form } = saved;
    builder.scope(format!("layer {layer}/down backward"));
    let grad_out = down.0.backward_as(builder, down.1, (grad_out, form))?.stored();
    builder.scope(format!("layer {layer}/swiglu backward"));
    let [forms_gate, forms_up] = [gate.1, up.1].map(|linear| linear.forms(builder));
    let grad_gate = Activation::transient(builder, ("grad_gate", grad_out.len()), forms_gate);
    let grad_up = Activation::transient(builder, ("grad_up", grad_out.len()), forms_up);
    let both = SwiGluBackward {
        gate: gate.0.stored(),
        up: up.0.stored(),
        grad_out,
        grad_gate: grad_gate.written(),
        grad_up: grad_up.written(),
    };
    builder.launch(both.launch())?;
    let names = ["gate", "up"].map(|part| format!("layer {layer}/{part} backward"));
    let (gate, up) = ((gate.1, gate.2), (up.1, up.2));
    let layers = [(gate, grad_gate, &*names[0]), (up, grad_up, &*names[1])];
    let [from_gate, from_up] = linear::backward_each(builder, layers)?;
    Ok([from_gate, from_up])
}
