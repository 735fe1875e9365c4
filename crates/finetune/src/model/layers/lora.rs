//! LoRA updates of linear layers.
//!
//! ```text
//! y += s·t·Bᵀ       with t = x·Aᵀ
//! dB = s·dyᵀ·t      dt = s·dy·B      dA = dtᵀ·x      dx += dt·A
//! ```
//!
//! Dropout applies to the x of the update, and to its dt·A.
//!
//! Ranks up to [`LORA_MAX_RANK`] have kernels of their own, which read the long operand once for
//! all updates that share it. Larger ranks are ordinary matrix products ([`large_rank`]). Updates
//! of one row are computed by [`super::gemv`].

mod backward;
mod large_rank;

use retrograph_kernels::ops::{
    DType, GemmShape, LORA_MAX_RANK, LoraExpand, LoraExpandAdapter, LoraMatrix, LoraShape,
    LoraShrink, LoraShrinkAdapter,
};
use retrograph_runtime::Slice;

use super::Builder;
use super::activation::Activation;
use crate::error::Result;
use crate::model::builder::{DropoutSite, F32Weight};

pub(super) use backward::{LoraBackward, backward};

/// The update of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lora {
    pub(super) a: F32Weight,
    pub(super) b: F32Weight,
    pub(super) rank: usize,
    pub(super) scale: f32,
    pub(super) dropout: Option<DropoutSite>,
    /// The shape of the layer.
    pub(super) shape: GemmShape,
    /// The type of the factors of products of large ranks.
    pub(super) compute: DType,
}

/// What the backward pass needs from the forward pass: the input after dropout, and `t = x·Aᵀ`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) x: Slice<f32>,
    pub(super) t: Slice<f32>,
}

/// The first product of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Down {
    x: Slice<f32>,
    /// One t per split of the contraction; their sum is t.
    t: Slice<f32>,
    splits: usize,
}

impl Lora {
    /// Whether the kernels for low ranks compute it. That depends on the rank alone, so that the
    /// result has the same bits on every device.
    fn is_low(&self) -> bool {
        self.rank <= LORA_MAX_RANK
    }

    /// Returns the input of the update: `x`, or a new transient with dropout.
    pub(super) fn drop_out(&self, builder: &mut Builder, x: Slice<f32>) -> Result<Slice<f32>> {
        let Some(site) = self.dropout else { return Ok(x) };
        let out = builder.transient("dropped", x.len());
        builder.drop_out(site, [x, out], false)?;
        Ok(out)
    }

    /// Returns the sizes on one side of the update.
    fn low_rank_shape(&self, matrix: LoraMatrix) -> LoraShape {
        let width = match matrix {
            LoraMatrix::A => self.shape.inputs,
            LoraMatrix::B => self.shape.outputs,
        };
        LoraShape { rows: self.shape.rows, width, rank: self.rank }
    }
}

/// Appends `t = x·Aᵀ` of layers that share x, each with its scope. Low ranks without dropout share
/// a launch.
pub(super) fn down(
    builder: &mut Builder,
    x: Activation,
    layers: &[(Option<&Lora>, Option<&str>)],
) -> Result<Vec<Option<Down>>> {
    let mut found = vec![None; layers.len()];
    let shares = |lora: &Lora| lora.is_low() && lora.dropout.is_none();
    let updates = layers.iter().enumerate();
    let updates = updates.filter_map(|(at, (lora, scope))| lora.map(|lora| (at, lora, *scope)));
    let (shared, alone): (Vec<_>, Vec<_>) = updates.partition(|(_, lora, _)| shares(lora));
    if !shared.is_empty() {
        let group: Vec<_> = shared.iter().map(|(_, lora, scope)| (*lora, *scope)).collect();
        let downs = low_rank_down(builder, &group, x.f32()?)?;
        shared.into_iter().zip(downs).for_each(|((at, ..), down)| found[at] = Some(down));
    }
    for (at, lora, scope) in alone {
        builder.enter(scope);
        let x = lora.drop_out(builder, x.f32()?)?;
        found[at] = if lora.is_low() {
            low_rank_down(builder, &[(lora, scope)], x)?.pop()
        } else {
            Some(Down { x, t: large_rank::down(builder, lora, x)?, splits: 1 })
        };
    }
    Ok(found)
}

/// Appends `t = x·Aᵀ` of low ranks as one launch, in the scope of the first.
fn low_rank_down(
    builder: &mut Builder,
    updates: &[(&Lora, Option<&str>)],
    x: Slice<f32>,
) -> Result<Vec<Down>> {
    let (mut taken, mut found) = (Vec::new(), Vec::new());
    let Some(&(first, scope)) = updates.first() else { return Ok(found) };
    let matrix = LoraMatrix::A;
    let shape = first.low_rank_shape(matrix);
    let splits = shape.shrink_splits(updates.len());
    for (lora, scope) in updates {
        builder.enter(*scope);
        let t = builder.transient("low_rank", splits * shape.rows * shape.rank);
        taken.push(LoraShrinkAdapter { w: lora.a.value, out: t });
        found.push(Down { x, t, splits });
    }
    builder.enter(scope);
    let down = LoraShrink { x, adapters: &taken, matrix, shape, splits, alpha: 1.0 };
    builder.launch(down.launch())?;
    Ok(found)
}

/// Appends `y += s·t·Bᵀ` of a layer.
pub(super) fn up(
    builder: &mut Builder,
    lora: &Lora,
    Down { x, t, splits }: Down,
    y: Slice<f32>,
) -> Result<Saved> {
    if !lora.is_low() {
        large_rank::up(builder, lora, [t, y])?;
        return Ok(Saved { x, t });
    }
    let (matrix, w) = (LoraMatrix::B, lora.b.value);
    let shape = lora.low_rank_shape(matrix);
    let (total, whole) = total(builder, t, (shape, splits));
    let adapters = &[LoraExpandAdapter { t, splits, w, total }];
    let (alpha, accumulate) = (lora.scale, true);
    builder.launch(LoraExpand { adapters, matrix, y, shape, alpha, accumulate }.launch())?;
    Ok(Saved { x, t: whole })
}

/// Declares the sum of the splits of t, if there are several. Returns it, and the buffer of t.
fn total(
    builder: &mut Builder,
    t: Slice<f32>,
    (shape, splits): (LoraShape, usize),
) -> (Option<Slice<f32>>, Slice<f32>) {
    let total = (splits > 1).then(|| builder.transient("low_rank_sum", shape.rows * shape.rank));
    (total, total.unwrap_or(t))
}
