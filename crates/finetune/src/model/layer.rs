//! One layer of the transformer: attention and MLP, each behind a norm and around a residual.

use retrograph_runtime::Slice;

use super::activation::{Activation, Forms};
use super::attention::{self, Rotary};
use super::builder::{Builder, Gradient};
use super::residual::Residual;
use super::{mlp, norm};
use crate::error::Result;
use crate::parameters::layer_name;

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    input_norm: norm::Saved,
    /// `None` where one token attended to a cache, which has no backward pass.
    attention: Option<attention::Saved>,
    mlp_norm: norm::Saved,
    /// `None` where the MLP is computed as a whole, which has no backward pass.
    mlp: Option<mlp::Saved>,
}

impl Saved {
    /// The input of the layer.
    pub(super) fn input(&self) -> Slice<f32> {
        self.input_norm.x
    }
}

/// Appends layer number `layer`, from the residual stream `x` to the next.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    x: Residual,
    rotary: Rotary,
) -> Result<(Residual, Saved)> {
    builder.scope(format!("layer {layer}/input norm"));
    let gamma = builder.weight(&layer_name(layer, "input_layernorm.weight"));
    let forms = attention::forms(builder, layer);
    let (normed, input_norm) = norm::of_tokens(builder, (x, gamma), forms)?;
    let (x, attention) = attention::forward(builder, layer, (normed, input_norm.x), rotary)?;
    builder.scope(format!("layer {layer}/mlp norm"));
    let gamma = builder.weight(&layer_name(layer, "post_attention_layernorm.weight"));
    let forms = mlp::forms(builder, layer);
    let (normed, mlp_norm) = norm::of_tokens(builder, (x, gamma), forms)?;
    let (x, mlp) = mlp::forward(builder, layer, (normed, mlp_norm.x))?;
    Ok((x, Saved { input_norm, attention, mlp_norm, mlp }))
}

/// In which forms the gradient of what the first `layers` layers give is read.
pub(super) fn grad_forms(builder: &Builder, layers: usize) -> Forms {
    layers.checked_sub(1).map_or(Forms::F32, |last| mlp::grad_forms(builder, last))
}

/// Turns `grad`, the gradient of the layer's output, into that of its input.
///
/// The residual passes the gradient on as it is, so that each branch is added in place. The norm
/// adds up what the projections behind it give, and rounds the sum for those in front of it.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    (saved, rotary): (Saved, Rotary),
    grad: Activation,
) -> Result<Activation> {
    let mlp = saved.mlp.expect("a pass that trains has no cache");
    let branch = mlp::backward(builder, layer, mlp, grad)?;
    builder.scope(format!("layer {layer}/mlp norm backward"));
    let forms = attention::grad_forms(builder, layer);
    let to = Activation::beside(builder, ("grad_residual", grad.floats()), forms);
    norm::backward(builder, saved.mlp_norm, &branch, Gradient { to, accumulate: true })?;
    let attention = saved.attention.expect("a pass that trains has no cache");
    let branch = attention::backward(builder, layer, (attention, rotary), to)?;
    builder.scope(format!("layer {layer}/input norm backward"));
    let forms = grad_forms(builder, layer);
    let to = Activation::beside(builder, ("grad_residual", grad.floats()), forms);
    norm::backward(builder, saved.input_norm, &branch, Gradient { to, accumulate: true })?;
    Ok(to)
}
