//! The attention of rotated queries to keys and values: by one kernel where heads are of a width
//! that it knows, else by products around a causal softmax, which keep the probabilities in memory.

use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionGradK, AttentionGradProbs,
    AttentionGradQ, AttentionGradV, AttentionScores, AttentionShape, AttentionValues,
    FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, Softmax, SoftmaxBackward, SplitKSum,
};
use retrograph_runtime::Slice;

use super::activation::{Activation, Forms};
use super::builder::Builder;
use crate::error::Result;

/// Rotated queries and keys, and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    pub(super) q: Slice<f32>,
    pub(super) k: Slice<f32>,
    pub(super) v: Slice<f32>,
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    operands: Operands,
    weights: Weights,
}

#[derive(Clone, Copy, Debug)]
enum Weights {
    /// The probabilities, `[batch, heads, seq, seq]`.
    Stored(Slice<f32>),
    /// The output, and one number for each row by which probabilities are computed again.
    Fused { out: Slice<f32>, lse: Slice<f32> },
}

/// Scores are divided by the root of the head's width.
pub(super) fn scale(shape: AttentionShape) -> f32 {
    (1.0 / (shape.head_dim as f64).sqrt()) as f32
}

/// Appends `softmax(scale · q·kᵀ)·v`, in the forms in which it is read.
pub(super) fn forward(
    builder: &mut Builder,
    operands: Operands,
    forms: Forms,
) -> Result<(Activation, Saved)> {
    let (out, weights) = if builder.config.fuses_attention() {
        fuse(builder, operands, forms)?
    } else {
        let (out, weights) = mix(builder, operands, builder.config.attention())?;
        (Activation::of(builder, out, forms)?, weights)
    };
    Ok((out, Saved { operands, weights }))
}

fn fuse(
    builder: &mut Builder,
    Operands { q, k, v }: Operands,
    forms: Forms,
) -> Result<(Activation, Weights)> {
    let shape = builder.config.attention();
    // The gradients read it in f32.
    let out = Activation::transient(builder, ("out", q.len()), forms.and(Forms::F32));
    let lse = builder.transient("lse", shape.batch * shape.heads * shape.seq);
    let scale = scale(shape);
    let step = FusedAttention { q, k, v, out: out.written(), lse, shape, scale };
    builder.launch(step.launch_in(builder.compute()))?;
    Ok((out, Weights::Fused { out: out.floats(), lse }))
}

fn mix(
    builder: &mut Builder,
    Operands { q, k, v }: Operands,
    shape: AttentionShape,
) -> Result<(Slice<f32>, Weights)> {
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
    Ok((out, Weights::Stored(probs)))
}

/// The gradients of the rotated queries and keys, and those of the values.
type Gradients = ([Slice<f32>; 2], Activation);

/// Appends the gradients of the rotated queries and keys, and of the values, which are read in
/// `forms`.
pub(super) fn backward(
    builder: &mut Builder,
    saved: Saved,
    (grad_out, forms): (Slice<f32>, Forms),
) -> Result<Gradients> {
    let operands = saved.operands;
    match saved.weights {
        Weights::Stored(probs) => {
            let [q, k, v] = unmix(builder, (operands, probs), grad_out)?;
            Ok(([q, k], Activation::of(builder, v, forms)?))
        }
        Weights::Fused { out, lse } => unfuse(builder, (operands, [out, lse]), (grad_out, forms)),
    }
}

fn unfuse(
    builder: &mut Builder,
    (Operands { q, k, v }, [out, lse]): (Operands, [Slice<f32>; 2]),
    (grad_out, forms): (Slice<f32>, Forms),
) -> Result<Gradients> {
    let (shape, compute) = (builder.config.attention(), builder.compute());
    let lse_delta = builder.transient("rows", 2 * lse.len());
    let step = AttentionBackwardPreprocess { out, grad_out, lse, lse_delta, shape };
    builder.launch(step.launch_in(compute))?;
    let inputs =
        AttentionBackwardInputs { q, k, v, grad_out, lse_delta, shape, scale: scale(shape) };
    let grad_q = builder.transient("grad_q", q.len());
    builder.launch(FusedAttentionGradQ { inputs, grad_q }.launch_in(compute))?;
    let (splits, len) = (shape.grad_kv_splits(), k.len());
    let grads = builder.transient("grad_kv", 2 * len);
    let grad_k = grads.slice(0..len);
    if splits == 1 {
        builder.launch(FusedAttentionGradKv { inputs, grads, splits }.launch_in(compute))?;
        let grad_v = Activation::of(builder, grads.slice(len..2 * len), forms)?;
        Ok(([grad_q, grad_k], grad_v))
    } else {
        let partials = builder.transient("grad_kv parts", splits * grads.len());
        let step = FusedAttentionGradKv { inputs, grads: partials, splits };
        builder.launch(step.launch_in(compute))?;
        let grads = Activation::beside(builder, ("grad_kv", grads), forms);
        builder.launch(SplitKSum { partials, out: grads.written(), splits }.launch())?;
        Ok(([grad_q, grad_k], grads.slice(len..2 * len)))
    }
}

fn unmix(
    builder: &mut Builder,
    (Operands { q, k, v }, probs): (Operands, Slice<f32>),
    grad_out: Slice<f32>,
) -> Result<[Slice<f32>; 3]> {
    let shape = builder.config.attention();
    let AttentionShape { batch, seq, heads, .. } = shape;
    let (rows, width, scale) = (batch * heads * seq, seq, scale(shape));
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
