//! One layer of the transformer: attention and MLP, each behind a norm and around a residual.

use retrograph_runtime::Slice;

use super::attention::{self, Rotary};
use super::builder::{Builder, Gradient};
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

/// Appends layer number `layer`, from the residual stream `x` to the next.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    x: Slice<f32>,
    rotary: Rotary,
) -> Result<(Slice<f32>, Saved)> {
    builder.scope(format!("layer {layer}/input norm"));
    let gamma = builder.weight(&layer_name(layer, "input_layernorm.weight"));
    let forms = attention::forms(builder, layer);
    let (normed, input_norm) = norm::of_tokens(builder, (x, gamma), forms)?;
    let (x, attention) = attention::forward(builder, layer, (normed, x), rotary)?;
    builder.scope(format!("layer {layer}/mlp norm"));
    let gamma = builder.weight(&layer_name(layer, "post_attention_layernorm.weight"));
    let forms = mlp::forms(builder, layer);
    let (normed, mlp_norm) = norm::of_tokens(builder, (x, gamma), forms)?;
    let (x, mlp) = mlp::forward(builder, layer, (normed, x))?;
    Ok((x, Saved { input_norm, attention, mlp_norm, mlp }))
}

/// Turns `grad`, the gradient of the layer's output, into that of its input.
///
/// The residual passes the gradient on as it is, so that each branch is added in place.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    (saved, rotary): (Saved, Rotary),
    grad: Slice<f32>,
) -> Result<()> {
    let residual = Gradient { slice: grad, accumulate: true };
    let mlp = saved.mlp.expect("a pass that trains has no cache");
    let branch = mlp::backward(builder, layer, mlp, grad)?;
    builder.scope(format!("layer {layer}/mlp norm backward"));
    norm::backward(builder, saved.mlp_norm, branch, residual)?;
    let attention = saved.attention.expect("a pass that trains has no cache");
    let branch = attention::backward(builder, layer, (attention, rotary), grad)?;
    builder.scope(format!("layer {layer}/input norm backward"));
    norm::backward(builder, saved.input_norm, branch, residual)
}
