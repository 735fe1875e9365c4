//! The two ends of the model, which can share the token table: embedding, and logits with their
//! loss.

use std::ops::Range;

use retrograph_kernels::ops::{
    CrossEntropy, Embedding, EmbeddingBackward, GemmShape, GradLogits, Mean,
};
use retrograph_runtime::Slice;

use super::activation::{Activation, Forms};
use super::builder::{Builder, Gradient, Weight};
use super::linear::{self, Linear};
use super::norm;
use super::residual::Residual;
use crate::error::Result;
use crate::parameters::{EMBEDDING, FINAL_NORM, HEAD};

/// Appends the rows of the table that belong to `tokens`.
pub(super) fn embed(builder: &mut Builder, tokens: Slice<u32>) -> Result<Slice<f32>> {
    builder.scope("embedding");
    let (hidden, vocab) = (builder.config.model.hidden, builder.config.model.vocab);
    let table = builder.weight(EMBEDDING).value.stored();
    let out = builder.transient("out", builder.rows() * hidden);
    builder.launch(Embedding { tokens, table, out, hidden, vocab }.launch())?;
    Ok(out)
}

/// Appends what `grad`, the gradient of the embedded tokens, adds to that of the table. A table
/// that is the output projection, too, has a gradient from there already; others start from zero.
pub(super) fn embed_backward(
    builder: &mut Builder,
    tokens: Slice<u32>,
    grad: Slice<f32>,
) -> Result<()> {
    let Some(grad_table) = builder.weight(EMBEDDING).grad else { return Ok(()) };
    builder.scope("embedding backward");
    let (hidden, vocab) = (builder.config.model.hidden, builder.config.model.vocab);
    if !builder.config.model.tied && !builder.accumulates() {
        builder.pass.fill(grad_table, 0)?;
    }
    let backward = EmbeddingBackward { tokens, grad_out: grad, grad_table, hidden, vocab };
    builder.launch(backward.launch())
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    norm: norm::Saved,
    projection: (Linear, linear::Saved),
    logits: Slice<f32>,
}

/// Appends the final norm and the logits of every row of `x`.
pub(super) fn logits(builder: &mut Builder, x: Residual) -> Result<(Slice<f32>, Saved)> {
    let (normed, norm, linear) = normed(builder, x)?;
    let (logits, saved) = linear.forward(builder, normed, "out")?;
    Ok((logits, Saved { norm, projection: (linear, saved), logits }))
}

/// As [`logits`], into a buffer that is given.
pub(super) fn logits_into(builder: &mut Builder, x: Residual, logits: Slice<f32>) -> Result<()> {
    let (normed, _, linear) = normed(builder, x)?;
    linear.forward_into(builder, normed, logits)?;
    Ok(())
}

/// The matrix that the logits are made with.
pub(super) fn projection(builder: &Builder) -> Weight {
    builder.weight(if builder.config.model.tied { EMBEDDING } else { HEAD })
}

/// Appends the final norm. What the logits are made of, and how.
fn normed(builder: &mut Builder, x: Residual) -> Result<(Activation, norm::Saved, Linear)> {
    let (inputs, outputs) = (builder.config.model.hidden, builder.config.model.vocab);
    let shape = GemmShape { rows: x.x.len() / inputs, inputs, outputs };
    let linear = Linear::of(projection(builder), shape);
    builder.scope("final norm");
    let gamma = builder.weight(FINAL_NORM);
    let (normed, norm) = norm::of_tokens(builder, (x, gamma), linear.forms(builder))?;
    builder.scope("logits");
    Ok((normed, norm, linear))
}

/// What is to be predicted, and where it is said how well that went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    pub(super) targets: Slice<u32>,
    /// How many targets of the step count. It differs from step to step, so that it is a control.
    pub(super) counted: Slice<u32>,
    /// The cross-entropy of each row.
    pub(super) losses: Slice<f32>,
}

impl Objective {
    /// That of the rows `rows`.
    pub(super) fn part(self, rows: Range<usize>) -> Self {
        let (targets, losses) = (self.targets.slice(rows.clone()), self.losses.slice(rows));
        Self { targets, losses, ..self }
    }
}

/// Appends the cross-entropy of each row. The gradient of their mean replaces the logits, unless
/// the product that reads it takes bf16.
pub(super) fn loss(
    builder: &mut Builder,
    saved: &Saved,
    objective: Objective,
) -> Result<Activation> {
    builder.scope("loss");
    let Objective { targets, counted, losses } = objective;
    let (rows, vocab, logits) = (builder.rows(), builder.config.model.vocab, saved.logits);
    let forms = saved.projection.0.forms(builder);
    let (grad, grad_logits) = if forms.bf16 {
        let grad = Activation::transient(builder, ("grad_logits", logits.len()), forms);
        (grad, GradLogits::Separate(grad.written()))
    } else {
        (logits.into(), GradLogits::InPlace)
    };
    let loss = CrossEntropy { logits, targets, losses, grad_logits, counted, rows, vocab };
    builder.launch(loss.launch())?;
    Ok(grad)
}

/// Appends the mean over the rows that count.
pub(super) fn mean(builder: &mut Builder, objective: Objective, out: Slice<f32>) -> Result<()> {
    builder.scope("loss");
    let Objective { counted, losses, .. } = objective;
    builder.launch(Mean { x: losses, counted, out }.launch())
}

/// Appends the gradient of the last layer's output, given that of the logits. It is f32, and bf16
/// beside that where `forms` asks for it.
pub(super) fn logits_backward(
    builder: &mut Builder,
    saved: Saved,
    grad_logits: Activation,
    forms: Forms,
) -> Result<Activation> {
    builder.scope("logits backward");
    let (linear, linear_saved) = saved.projection;
    let grad_normed = linear.backward(builder, linear_saved, grad_logits)?;
    builder.scope("final norm backward");
    let forms = forms.and(Forms::F32);
    let to = Activation::transient(builder, ("grad_residual", grad_normed.len()), forms);
    norm::backward(builder, saved.norm, &[grad_normed], Gradient { to, accumulate: false })?;
    Ok(to)
}
