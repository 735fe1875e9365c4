//! The forward products of LoRA updates.

use retrograph_kernels::ops::{
    LoraExpand, LoraExpandAdapter, LoraMatrix, LoraShrink, LoraShrinkAdapter,
};
use retrograph_runtime::Slice;

use super::update::{Lora, Method, Saved, SavedIn, total};
use crate::error::Result;
use crate::model::builder::Builder;
use crate::model::layers::activation::Activation;

/// The first product of an update.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) enum Down {
    /// By the LoRA kernels: one t per split of the contraction. Their sum is t.
    Splits { x: Slice<f32>, t: Slice<f32>, splits: usize },
    /// By GEMM.
    Product(Saved),
}

/// Appends `t = x·Aᵀ` of layers that share x, each with its scope. Equal low ranks without dropout
/// share a launch.
pub(in crate::model::layers) fn down(
    builder: &mut Builder,
    x: Activation,
    layers: &[(Option<&Lora>, Option<&str>)],
) -> Result<Vec<Option<Down>>> {
    let mut found = vec![None; layers.len()];
    let shares = |lora: &Lora| matches!(lora.method, Method::LowRank) && lora.dropout.is_none();
    let updates = layers.iter().enumerate();
    let updates = updates.filter_map(|(at, (lora, scope))| lora.map(|lora| (at, lora, *scope)));
    let (mut shared, alone): (Vec<_>, Vec<_>) = updates.partition(|(_, lora, _)| shares(lora));
    shared.sort_by_key(|(_, lora, _)| lora.rank);
    for alike in shared.chunk_by(|left, right| left.1.rank == right.1.rank) {
        let group: Vec<_> = alike.iter().map(|(_, lora, scope)| (*lora, *scope)).collect();
        let downs = low_rank_down(builder, &group, x.f32()?)?;
        alike.iter().zip(downs).for_each(|((at, ..), down)| found[*at] = Some(down));
    }
    for (at, lora, scope) in alone {
        builder.enter(scope);
        found[at] = if let Some(products) = lora.bf16_products() {
            let x = x.bf16()?;
            let t = products.down(builder, x)?;
            Some(Down::Product(Saved::Bf16(SavedIn { x, t })))
        } else {
            let x = lora.drop_out(builder, x.f32()?)?;
            match lora.method {
                Method::LowRank => low_rank_down(builder, &[(lora, scope)], x)?.pop(),
                _ => {
                    let t = lora.f32_products().down(builder, x)?;
                    Some(Down::Product(Saved::F32(SavedIn { x, t })))
                }
            }
        };
    }
    Ok(found)
}

/// Appends `t = x·Aᵀ` of one low rank as one launch, in the scope of the first.
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
        found.push(Down::Splits { x, t, splits });
    }
    builder.enter(scope);
    let down = LoraShrink { x, adapters: &taken, matrix, shape, splits, alpha: 1.0 };
    builder.launch(down.launch())?;
    Ok(found)
}

/// Appends `y += s·t·Bᵀ` of a layer whose product with the weight does not add it.
pub(in crate::model::layers) fn up(
    builder: &mut Builder,
    lora: &Lora,
    down: Down,
    y: Slice<f32>,
) -> Result<Saved> {
    let (x, t, splits) = match down {
        Down::Splits { x, t, splits } => (x, t, splits),
        Down::Product(saved) => {
            match (saved, lora.bf16_products()) {
                (Saved::Bf16(SavedIn { t, .. }), Some(products)) => products.up(builder, t, y)?,
                (Saved::Bf16(_), None) => unreachable!("t is bf16 if products are"),
                (Saved::F32(SavedIn { t, .. }), _) => lora.f32_products().up(builder, t, y)?,
            }
            return Ok(saved);
        }
    };
    let (matrix, w) = (LoraMatrix::B, lora.b.value);
    let shape = lora.low_rank_shape(matrix);
    let (total, whole) = total(builder, t, shape, splits);
    let adapters = &[LoraExpandAdapter { t, splits, w, total }];
    let (alpha, accumulate) = (lora.scale, true);
    builder.launch(LoraExpand { adapters, matrix, y, shape, alpha, accumulate }.launch())?;
    Ok(Saved::F32(SavedIn { x, t: whole }))
}
