//! The gradients of low ranks.
//!
//! Updates of one input add what they contribute to its gradient in one launch, to one of the
//! gradients that the layers leave of it, whose sum it is.

use retrograph_kernels::ops::{
    ColumnSum, Dropout, LoraExpand, LoraExpandAdapter, LoraGrad, LoraGradAdapter, LoraMatrix,
    LoraShape, LoraShrink, LoraShrinkAdapter,
};
use retrograph_runtime::Slice;

use super::{Lora, LowRank, enter, tiles, total};
use crate::error::Result;
use crate::model::builder::{Builder, Randomness};
use crate::model::linear::Linear;

/// A layer with an update, what its forward pass left, and gradients.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Given<'a> {
    pub(in crate::model) layer: &'a Linear,
    /// The scope of the layer, where it is not the only one.
    pub(in crate::model) scope: Option<&'a str>,
    pub(in crate::model) low_rank: LowRank,
    pub(in crate::model) grad_out: Slice<f32>,
    /// What the layer leaves of the gradient of its input, which is added to.
    pub(in crate::model) grad_input: Slice<f32>,
}

/// The gradient of t, in parts.
struct Parted<'a> {
    given: &'a Given<'a>,
    lora: Lora,
    grad_t: Slice<f32>,
    parts: usize,
}

/// Appends the gradients of the matrices of layers of one input, and what their updates add to that
/// of the input.
pub(in crate::model) fn backward(builder: &mut Builder, layers: &[Given<'_>]) -> Result<()> {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for given in layers {
        let Some(lora) = given.layer.lora else { continue };
        enter(builder, given.scope);
        if !lora.is_low() {
            tiles::backward(builder, given, &lora)?;
            continue;
        }
        let parted = through_b(builder, given, lora)?;
        if lora.dropout.is_some() { &mut alone } else { &mut together }.push(parted);
    }
    if !together.is_empty() {
        through_a(builder, &together)?;
    }
    alone.iter().try_for_each(|one| through_a(builder, std::slice::from_ref(one)))
}

/// Appends `dB = s·dyᵀ·t` and `dt = s·dy·B`.
fn through_b<'a>(builder: &mut Builder, given: &'a Given<'a>, lora: Lora) -> Result<Parted<'a>> {
    let (x, matrix, alpha) = (given.grad_out, LoraMatrix::B, lora.scale);
    let shape = lora.shape(given.layer, matrix);
    let parts = shape.shrink_splits(1);
    let grad_t = builder.transient("grad_low_rank", parts * shape.rows * shape.rank);
    let adapters = &[LoraShrinkAdapter { w: lora.b.floats(), out: grad_t }];
    builder.launch(LoraShrink { x, adapters, matrix, shape, splits: parts, alpha }.launch())?;
    if let Some(grad) = lora.b.grad {
        let matrices = Matrices { matrix, shape, alpha, of: &[(given.low_rank.t, grad)] };
        matrices.append(builder, x)?;
    }
    Ok(Parted { given, lora, grad_t, parts })
}

/// Appends `dx += Σ dt·A` and `dA = dtᵀ·x` of updates that share x.
fn through_a(builder: &mut Builder, updates: &[Parted<'_>]) -> Result<()> {
    let Parted { given, lora, .. } = &updates[0];
    // The gradient that is there first: that of the layer with the least to multiply.
    let home = updates.iter().min_by_key(|it| it.given.layer.shape.outputs);
    let grad_input = home.expect("there is an update").given.grad_input;
    let matrix = LoraMatrix::A;
    let shape = lora.shape(given.layer, matrix);
    enter(builder, given.scope);
    let dropped = lora.dropout.map(|_| builder.transient("grad_dropped", grad_input.len()));
    let (y, accumulate) = (dropped.unwrap_or(grad_input), dropped.is_none());
    let (mut added, mut whole) = (Vec::new(), Vec::new());
    for Parted { given, lora, grad_t, parts } in updates {
        enter(builder, given.scope);
        let (total, t) = total(builder, *grad_t, (shape, *parts));
        whole.push(t);
        added.push(LoraExpandAdapter { t: *grad_t, splits: *parts, w: lora.a.floats(), total });
    }
    enter(builder, given.scope);
    let add = LoraExpand { adapters: &added, matrix, y, shape, alpha: 1.0, accumulate };
    builder.launch(add.launch())?;
    if let Some((x, (probability, random))) = dropped.zip(lora.dropout) {
        let (out, Randomness { step, seed, stream }) = (grad_input, random);
        let dropout =
            Dropout { x, out, step, probability, seed, sequence: stream, accumulate: true };
        builder.launch(dropout.launch())?;
    }
    let grads = updates.iter().zip(whole);
    let of: Vec<_> = grads.filter_map(|(update, t)| Some((t, update.lora.a.grad?))).collect();
    if of.is_empty() {
        return Ok(());
    }
    Matrices { matrix, shape, alpha: 1.0, of: &of }.append(builder, given.low_rank.x)
}

/// Gradients of matrices that share an operand: what is taken from it, and where it goes.
struct Matrices<'a> {
    matrix: LoraMatrix,
    shape: LoraShape,
    alpha: f32,
    of: &'a [(Slice<f32>, Slice<f32>)],
}

impl Matrices<'_> {
    fn append(&self, builder: &mut Builder, x: Slice<f32>) -> Result<()> {
        let Self { matrix, shape, alpha, of } = *self;
        let (runs, accumulate) = (shape.grad_splits(of.len()), builder.accumulates());
        let mut partial = |(t, grad): &(Slice<f32>, Slice<f32>)| {
            let out = match runs {
                1 => *grad,
                _ => builder.transient("grad_runs", runs * grad.len()),
            };
            LoraGradAdapter { t: *t, out }
        };
        let adapters: Vec<_> = of.iter().map(&mut partial).collect();
        let added = accumulate && runs == 1;
        let (adapters, splits) = (&adapters[..], runs);
        let grad = LoraGrad { x, adapters, matrix, shape, splits, alpha, accumulate: added };
        builder.launch(grad.launch())?;
        for (update, (_, grad)) in adapters.iter().zip(of).filter(|_| runs > 1) {
            let (x, out, rows, columns) = (update.out, *grad, runs, grad.len());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(())
    }
}
