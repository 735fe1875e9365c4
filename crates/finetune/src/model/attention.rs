//! Grouped-query attention with rotary positions, composed of batched products and a causal
//! softmax.

use retrograph_kernels::ops::{
    AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV, AttentionScores,
    AttentionShape, AttentionValues, Rope, Softmax, SoftmaxBackward,
};
use retrograph_runtime::Slice;

use super::activation::{Activation, Forms};
use super::builder::{Builder, Gradient};
use super::cached;
use super::linear::{self, Linear};
use super::norm;
use crate::error::Result;
use crate::parameters::layer_name;

/// The rotary tables, `[positions, head_dim / 2]` each: the positions of a sequence, or those of
/// the cache where there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotary {
    pub(super) cos: Slice<f32>,
    pub(super) sin: Slice<f32>,
}

impl Rotary {
    /// Declares the tables as external buffers.
    pub(super) fn declare(builder: &mut Builder) -> Self {
        let positions = builder.cache.as_ref().map_or(builder.config.seq, |cache| cache.form.room);
        let len = positions * builder.config.model.head_dim() / 2;
        let cos = builder.pass.external("rope.cos", len);
        let sin = builder.pass.external("rope.sin", len);
        Self { cos, sin }
    }

    /// Appends the rotation of `x`, or its inverse, which is its gradient.
    fn rotate(self, builder: &mut Builder, x: Slice<f32>, inverse: bool) -> Result<Slice<f32>> {
        let config = &builder.config;
        let (batch, seq, head_dim) = (config.batch, config.seq, config.model.head_dim());
        let heads = x.len() / (batch * seq * head_dim);
        let out = builder.transient(if inverse { "grad_unrotated" } else { "rotated" }, x.len());
        let Self { cos, sin } = self;
        let start = builder.cache.as_ref().map(|cache| cache.position);
        let positions = cos.len() / (head_dim / 2);
        builder.launch(
            Rope { x, cos, sin, out, start, positions, batch, seq, heads, head_dim, inverse }
                .launch(),
        )?;
        Ok(out)
    }
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    projections: [(Linear, linear::Saved); 4],
    /// Of the query and the key heads, where the model has norms there.
    norms: [Option<norm::Saved>; 2],
    q: Slice<f32>,
    k: Slice<f32>,
    v: Slice<f32>,
    /// `None` where a cache was attended to, which has no backward pass.
    probs: Option<Slice<f32>>,
}

fn shape(builder: &Builder) -> AttentionShape {
    let (config, model) = (&builder.config, &builder.config.model);
    AttentionShape {
        batch: config.batch,
        seq: config.seq,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim(),
    }
}

/// Scores are divided by the root of the head's width.
fn scale(shape: AttentionShape) -> f32 {
    (1.0 / (shape.head_dim as f64).sqrt()) as f32
}

/// The projection `part` of `layer`.
fn projection(builder: &Builder, layer: usize, part: &str) -> Linear {
    let model = builder.config.model;
    let shape = match part {
        "q" => [model.hidden, model.q_width()],
        "o" => [model.q_width(), model.hidden],
        _ => [model.hidden, model.kv_width()],
    };
    Linear::new(builder, &layer_name(layer, &format!("self_attn.{part}_proj")), shape)
}

/// In which forms the attention of `layer` reads its input.
pub(super) fn forms(builder: &Builder, layer: usize) -> Forms {
    let forms = ["q", "k", "v"].map(|part| projection(builder, layer, part).forms(builder));
    forms.into_iter().fold(Forms::default(), Forms::and)
}

/// Appends the attention of `layer`, and adds it to `residual`.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    (x, residual): (Activation, Slice<f32>),
    rotary: Rotary,
) -> Result<(Slice<f32>, Saved)> {
    let project = |builder: &mut Builder, part: &str| -> Result<_> {
        let linear = projection(builder, layer, part);
        builder.scope(format!("layer {layer}/{part}"));
        let (y, saved) = linear.forward(builder, x, "out")?;
        Ok((y, (linear, saved)))
    };
    let (q, q_saved) = project(builder, "q")?;
    let (q, q_norm) = norm_heads(builder, &layer_name(layer, "self_attn.q_norm.weight"), q)?;
    let q = rotary.rotate(builder, q, false)?;
    let (k, k_saved) = project(builder, "k")?;
    let (k, k_norm) = norm_heads(builder, &layer_name(layer, "self_attn.k_norm.weight"), k)?;
    let k = rotary.rotate(builder, k, false)?;
    let (v, v_saved) = project(builder, "v")?;
    builder.scope(format!("layer {layer}/attention"));
    let (probs, mixed) = match builder.cache.clone() {
        None => mix(builder, [q, k, v]).map(|(probs, mixed)| (Some(probs), mixed))?,
        Some(cache) => {
            let scale = scale(shape(builder));
            (None, cached::attend(builder, (&cache, layer), [q, k, v], scale)?)
        }
    };
    builder.scope(format!("layer {layer}/o"));
    let o = projection(builder, layer, "o");
    let mixed = Activation::of(builder, mixed, o.forms(builder))?;
    let (out, o_saved) =
        o.forward_onto(builder, mixed, (residual, &format!("layer {layer}/attention residual")))?;
    let (projections, norms) = ([q_saved, k_saved, v_saved, (o, o_saved)], [q_norm, k_norm]);
    Ok((out, Saved { projections, norms, q, k, v, probs }))
}

/// Appends the norm of every head of `x` by the gain `name`, where the model has it.
fn norm_heads(
    builder: &mut Builder,
    name: &str,
    x: Slice<f32>,
) -> Result<(Slice<f32>, Option<norm::Saved>)> {
    let Some(gamma) = builder.weight_if_any(name) else { return Ok((x, None)) };
    let (y, saved) = norm::forward(builder, (x, gamma), Forms::F32)?;
    Ok((y.floats(), Some(saved)))
}

/// Appends the gradient of what [`norm_heads`] took.
fn norm_heads_backward(
    builder: &mut Builder,
    saved: Option<norm::Saved>,
    grad_out: Slice<f32>,
) -> Result<Slice<f32>> {
    let Some(saved) = saved else { return Ok(grad_out) };
    let slice = builder.transient("grad_unnormed", grad_out.len());
    norm::backward(builder, saved, grad_out, Gradient { slice, accumulate: false })?;
    Ok(slice)
}

/// Appends `probs = softmax(scale · q·kᵀ)` and `probs · v`.
fn mix(builder: &mut Builder, [q, k, v]: [Slice<f32>; 3]) -> Result<(Slice<f32>, Slice<f32>)> {
    let shape = shape(builder);
    let AttentionShape { batch, seq, heads, .. } = shape;
    let (rows, width) = (batch * heads * seq, seq);
    let scores = builder.transient("scores", rows * width);
    let compute = builder.compute();
    let step = AttentionScores { q, k, scores, shape, scale: scale(shape) };
    builder.launch(step.launch_in(compute))?;
    let probs = builder.transient("probs", rows * width);
    let softmax = Softmax { input: scores, output: probs, rows, width, causal: true };
    builder.launch(softmax.launch())?;
    let out = builder.transient("out", q.len());
    builder.launch(AttentionValues { probs, v, out, shape }.launch_in(compute))?;
    Ok((probs, out))
}

/// Appends the gradient of the input of the attention of `layer`, and those of its weights.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    (saved, rotary): (Saved, Rotary),
    grad_out: Slice<f32>,
) -> Result<Slice<f32>> {
    let [q, k, v, o] = saved.projections;
    builder.scope(format!("layer {layer}/o backward"));
    let grad_mixed = through(builder, o, grad_out)?;
    builder.scope(format!("layer {layer}/attention backward"));
    let grads = unmix(builder, &saved, grad_mixed)?;
    builder.scope(format!("layer {layer}/q backward"));
    let grad_q = rotary.rotate(builder, grads[0], true)?;
    let grad_q = norm_heads_backward(builder, saved.norms[0], grad_q)?;
    let from_q = through(builder, q, grad_q)?;
    builder.scope(format!("layer {layer}/k backward"));
    let grad_k = rotary.rotate(builder, grads[1], true)?;
    let grad_k = norm_heads_backward(builder, saved.norms[1], grad_k)?;
    let from_k = through(builder, k, grad_k)?;
    builder.scope(format!("layer {layer}/v backward"));
    let from_v = through(builder, v, grads[2])?;
    builder.scope(format!("layer {layer}/attention backward"));
    let from_k_and_v = builder.sum(from_k, from_v)?;
    builder.sum(from_k_and_v, from_q)
}

/// Appends the gradients of a projection, and gives that of its input.
fn through(
    builder: &mut Builder,
    (linear, saved): (Linear, linear::Saved),
    grad_out: Slice<f32>,
) -> Result<Slice<f32>> {
    let grad_out = Activation::of(builder, grad_out, linear.forms(builder))?;
    linear.backward(builder, saved, grad_out)
}

/// Appends the gradients of the rotated queries and keys, and of the values.
fn unmix(builder: &mut Builder, saved: &Saved, grad_out: Slice<f32>) -> Result<[Slice<f32>; 3]> {
    let shape = shape(builder);
    let AttentionShape { batch, seq, heads, .. } = shape;
    let (rows, width, scale) = (batch * heads * seq, seq, scale(shape));
    let Saved { q, k, v, probs, .. } = *saved;
    let probs = probs.expect("a pass that trains has no cache");
    let compute = builder.compute();
    let grad_probs = builder.transient("grad_probs", probs.len());
    builder.launch(AttentionGradProbs { grad_out, v, grad_probs, shape }.launch_in(compute))?;
    let grad_v = builder.transient("grad_v", v.len());
    builder.launch(AttentionGradV { probs, grad_out, grad_v, shape }.launch_in(compute))?;
    let grad_scores = builder.transient("grad_scores", probs.len());
    builder.launch(
        SoftmaxBackward {
            probs,
            grad_out: grad_probs,
            grad_input: grad_scores,
            rows,
            width,
            causal: true,
        }
        .launch(),
    )?;
    let grad_q = builder.transient("grad_q", q.len());
    let step = AttentionGradQ { grad_scores, k, grad_q, shape, scale };
    builder.launch(step.launch_in(compute))?;
    let grad_k = builder.transient("grad_k", k.len());
    let step = AttentionGradK { grad_scores, q, grad_k, shape, scale };
    builder.launch(step.launch_in(compute))?;
    Ok([grad_q, grad_k, grad_v])
}
