//! Low-rank updates of linear layers, and what is between their matrices.
//!
//! ```text
//! y += s·t·Bᵀ       with t = x·Aᵀ
//! dB = s·dyᵀ·t      dt = s·dy·B      dA = dtᵀ·x      dx += dt·A
//! ```
//!
//! With dropout, the update takes x with some of its elements left out and the others scaled up,
//! and dx takes as much of dt·A.
//!
//! Up to a rank of [`LORA_MAX_RANK`] these are kernels of their own, which read what is long once
//! for all updates that share it. Greater ranks are products as others are ([`tiles`]). One row is
//! left to [`super::vector`].

mod gradients;
mod tiles;

use retrograph_kernels::ops::{
    Dropout, LORA_MAX_RANK, LoraExpand, LoraExpandAdapter, LoraMatrix, LoraShape, LoraShrink,
    LoraShrinkAdapter,
};
use retrograph_runtime::Slice;

use super::activation::Activation;
use super::builder::{Builder, Randomness, Weight};
use super::linear::Linear;
use crate::error::Result;

pub(super) use gradients::{Given, backward};

/// The update of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lora {
    pub(super) a: Weight,
    pub(super) b: Weight,
    pub(super) rank: usize,
    pub(super) scale: f32,
    pub(super) dropout: Option<(f32, Randomness)>,
}

/// The input of an update, and what is between its matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowRank {
    pub(super) x: Slice<f32>,
    pub(super) t: Slice<f32>,
}

/// The same with t in parts, which are still to be added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    of: LowRank,
    count: usize,
}

impl Lora {
    /// Whether the kernels for low ranks take it. That depends on the rank alone, so that bits do
    /// not depend on the device.
    fn is_low(&self) -> bool {
        self.rank <= LORA_MAX_RANK
    }

    /// Appends the input of the update: `x`, or what dropout leaves of it.
    pub(super) fn drop_out(&self, builder: &mut Builder, x: Slice<f32>) -> Result<Slice<f32>> {
        let Some((probability, Randomness { step, seed, stream })) = self.dropout else {
            return Ok(x);
        };
        let out = builder.transient("dropped", x.len());
        let dropout =
            Dropout { x, out, step, probability, seed, sequence: stream, accumulate: false };
        builder.launch(dropout.launch())?;
        Ok(out)
    }

    /// The sizes on one side of the update of `layer`.
    fn shape(&self, layer: &Linear, side: LoraMatrix) -> LoraShape {
        let width = match side {
            LoraMatrix::A => layer.shape.inputs,
            LoraMatrix::B => layer.shape.outputs,
        };
        LoraShape { rows: layer.shape.rows, width, rank: self.rank }
    }
}

/// A layer, and its scope where that is not the one that is set.
pub(super) type Scoped<'a> = (&'a Linear, Option<&'a str>);

/// Appends `t = x·Aᵀ` of the layers that have an update: in one launch, where they read the same.
pub(super) fn down(
    builder: &mut Builder,
    layers: &[Scoped<'_>],
    x: Activation,
) -> Result<Vec<Option<Parts>>> {
    let mut found = vec![None; layers.len()];
    let whole = |lora: &Lora| lora.is_low() && lora.dropout.is_none();
    let shares = |at: &usize| layers[*at].0.lora.as_ref().is_some_and(whole);
    let (together, others): (Vec<_>, Vec<_>) = (0..layers.len()).partition(shares);
    if !together.is_empty() {
        let group: Vec<_> = together.iter().map(|at| layers[*at]).collect();
        let parts = take(builder, &group, x.floats())?;
        together.into_iter().zip(parts).for_each(|(at, parts)| found[at] = Some(parts));
    }
    for at in others {
        let (layer, scope) = layers[at];
        let Some(lora) = layer.lora else { continue };
        enter(builder, scope);
        let x = lora.drop_out(builder, x.floats())?;
        found[at] = if lora.is_low() {
            take(builder, &layers[at..=at], x)?.pop()
        } else {
            let t = tiles::down(builder, (layer, &lora), x)?;
            Some(Parts { of: LowRank { x, t }, count: 1 })
        };
    }
    Ok(found)
}

/// Appends `t = x·Aᵀ` of layers that have an update as one launch, in the scope of the first.
fn take(builder: &mut Builder, layers: &[Scoped<'_>], x: Slice<f32>) -> Result<Vec<Parts>> {
    let (mut taken, mut found) = (Vec::new(), Vec::new());
    let (matrix, mut sizes) = (LoraMatrix::A, None);
    for (layer, scope) in layers {
        let lora = layer.lora.expect("the layer has an update");
        enter(builder, *scope);
        let shape = lora.shape(layer, matrix);
        let count = shape.shrink_splits(layers.len());
        let t = builder.transient("low_rank", count * shape.rows * shape.rank);
        taken.push(LoraShrinkAdapter { w: lora.a.floats(), out: t });
        found.push(Parts { of: LowRank { x, t }, count });
        sizes = Some((shape, count));
    }
    let Some((shape, parts)) = sizes else { return Ok(found) };
    enter(builder, layers[0].1);
    let down = LoraShrink { x, adapters: &taken, matrix, shape, splits: parts, alpha: 1.0 };
    builder.launch(down.launch())?;
    Ok(found)
}

/// What follows belongs to `scope`, where there is one.
fn enter(builder: &mut Builder, scope: Option<&str>) {
    if let Some(scope) = scope {
        builder.scope(scope);
    }
}

/// Appends `y += s·t·Bᵀ` for a layer, and gives t as a whole.
pub(super) fn up(
    builder: &mut Builder,
    (layer, lora): (&Linear, &Lora),
    Parts { of: LowRank { x, t }, count }: Parts,
    y: Slice<f32>,
) -> Result<LowRank> {
    if !lora.is_low() {
        tiles::up(builder, (layer, lora), [t, y])?;
        return Ok(LowRank { x, t });
    }
    let (matrix, w) = (LoraMatrix::B, lora.b.floats());
    let shape = lora.shape(layer, matrix);
    let (total, whole) = total(builder, t, (shape, count));
    let adapters = &[LoraExpandAdapter { t, splits: count, w, total }];
    let (alpha, accumulate) = (lora.scale, true);
    builder.launch(LoraExpand { adapters, matrix, y, shape, alpha, accumulate }.launch())?;
    Ok(LowRank { x, t: whole })
}

/// Where the sum of the parts of t goes, if there are several, and where t is as a whole then.
fn total(
    builder: &mut Builder,
    t: Slice<f32>,
    (shape, parts): (LoraShape, usize),
) -> (Option<Slice<f32>>, Slice<f32>) {
    let total = (parts > 1).then(|| builder.transient("low_rank_sum", shape.rows * shape.rank));
    (total, total.unwrap_or(t))
}
