//! The gradients of LoRA updates.
//!
//! Updates of equal rank that share an input add to its gradient in one launch. The launch adds to
//! the gradient from one of the layers; the sum over the layers is the gradient of the input.

use half::bf16;
use retrograph_kernels::ops::{
    ColumnSum, LoraExpand, LoraExpandAdapter, LoraGrad, LoraGradAdapter, LoraMatrix, LoraShape,
    LoraShrink, LoraShrinkAdapter,
};
use retrograph_runtime::Slice;

use super::products::Products;
use super::update::{Lora, LoraBackward, Method, Saved, SavedIn, total};
use crate::error::Result;
use crate::model::builder::Builder;
use crate::model::layers::activation::Activation;

/// The gradient of t, one per split.
struct GradT<'a> {
    update: &'a LoraBackward<'a>,
    saved: SavedIn<f32>,
    grad_t: Slice<f32>,
    splits: usize,
}

/// Appends `dt = s·dy·B` before the product with the weight, if that adds `dt·A`.
pub(in crate::model::layers) fn fused_grad_t(
    builder: &mut Builder,
    lora: &Lora,
    grad_out: Activation,
) -> Result<Option<Slice<bf16>>> {
    let products = lora.bf16_products().filter(|_| lora.fused().is_some());
    products.map(|products| products.grad_t(builder, grad_out.bf16()?)).transpose()
}

/// Appends the gradients of the matrices of updates that share an input, and adds to the gradient
/// of the input.
pub(in crate::model::layers) fn backward(
    builder: &mut Builder,
    updates: &[LoraBackward<'_>],
) -> Result<()> {
    let (mut shared, mut alone) = (Vec::new(), Vec::new());
    for update in updates {
        builder.enter(update.scope);
        match (update.saved, update.lora.bf16_products(), update.lora.method) {
            (Saved::Bf16(saved), Some(products), _) => {
                in_bf16(builder, products, update, saved, updates.len())?;
            }
            (Saved::F32(saved), _, Method::LowRank) => {
                let grad_t = through_b(builder, update, saved)?;
                if update.lora.dropout.is_some() { &mut alone } else { &mut shared }.push(grad_t);
            }
            (Saved::F32(saved), ..) => in_f32(builder, update, saved, updates.len())?,
            (Saved::Bf16(_), None, _) => unreachable!("t is bf16 if products are"),
        }
    }
    shared.sort_by_key(|it| it.update.lora.rank);
    for alike in shared.chunk_by(|left, right| left.update.lora.rank == right.update.lora.rank) {
        through_a(builder, alike)?;
    }
    alone.iter().try_for_each(|one| through_a(builder, std::slice::from_ref(one)))
}

/// The same for products in bf16, of one of `updates` updates.
fn in_bf16(
    builder: &mut Builder,
    products: Products<'_, bf16>,
    update: &LoraBackward<'_>,
    saved: SavedIn<bf16>,
    updates: usize,
) -> Result<()> {
    let grad_out = update.grad_out.bf16()?;
    let grad_t = match update.grad_t {
        Some(grad_t) => grad_t,
        None => {
            let grad_t = products.grad_t(builder, grad_out)?;
            products.grad_input(builder, grad_t, update.grad_input()?, true)?;
            grad_t
        }
    };
    products.grad_matrices(builder, saved, updates, [grad_out, grad_t])
}

/// The same for products in f32, of one of `updates` updates, which may have dropout.
fn in_f32(
    builder: &mut Builder,
    update: &LoraBackward<'_>,
    saved: SavedIn<f32>,
    updates: usize,
) -> Result<()> {
    let (products, grad_out) = (update.lora.f32_products(), update.grad_out.f32()?);
    let grad_input = update.grad_input()?;
    let grad_t = products.grad_t(builder, grad_out)?;
    products.grad_matrices(builder, saved, updates, [grad_out, grad_t])?;
    let Some(site) = update.lora.dropout else {
        return products.grad_input(builder, grad_t, grad_input, true);
    };
    let dropped = builder.transient("grad_dropped", grad_input.len());
    products.grad_input(builder, grad_t, dropped, false)?;
    builder.drop_out(site, [dropped, grad_input], true)
}

/// Appends `dB = s·dyᵀ·t` and `dt = s·dy·B`.
fn through_b<'a>(
    builder: &mut Builder,
    update: &'a LoraBackward<'a>,
    saved: SavedIn<f32>,
) -> Result<GradT<'a>> {
    let lora = &update.lora;
    let (x, matrix, alpha) = (update.grad_out.f32()?, LoraMatrix::B, lora.scale);
    let shape = lora.low_rank_shape(matrix);
    let splits = shape.shrink_splits(1);
    let grad_t = builder.transient("grad_low_rank", splits * shape.rows * shape.rank);
    let taken = &[LoraShrinkAdapter { w: lora.b.value, out: grad_t }];
    let down = LoraShrink { x, adapters: taken, matrix, shape, splits, alpha };
    builder.launch(down.launch())?;
    if let Some(grad) = lora.b.grad {
        let matrices = Matrices { matrix, shape, alpha, of: &[(saved.t, grad)] };
        matrices.append(builder, x)?;
    }
    Ok(GradT { update, saved, grad_t, splits })
}

/// Appends `dx += Σ dt·A` and `dA = dtᵀ·x` of updates of one rank that share x.
fn through_a(builder: &mut Builder, updates: &[GradT<'_>]) -> Result<()> {
    let GradT { update: first, saved, .. } = updates[0];
    // The gradient of the smallest layer is complete first.
    let target = updates.iter().min_by_key(|it| it.update.lora.shape.outputs);
    let grad_input = target.map_or(*first, |it| *it.update).grad_input()?;
    let matrix = LoraMatrix::A;
    let shape = first.lora.low_rank_shape(matrix);
    builder.enter(first.scope);
    let dropped = first.lora.dropout.map(|_| builder.transient("grad_dropped", grad_input.len()));
    let (y, accumulate) = (dropped.unwrap_or(grad_input), dropped.is_none());
    let (mut added, mut whole) = (Vec::new(), Vec::new());
    for GradT { update, grad_t, splits, .. } in updates {
        builder.enter(update.scope);
        let (total, t) = total(builder, *grad_t, shape, *splits);
        whole.push(t);
        let w = update.lora.a.value;
        added.push(LoraExpandAdapter { t: *grad_t, splits: *splits, w, total });
    }
    builder.enter(first.scope);
    let add = LoraExpand { adapters: &added, matrix, y, shape, alpha: 1.0, accumulate };
    builder.launch(add.launch())?;
    if let Some((dropped, site)) = dropped.zip(first.lora.dropout) {
        builder.drop_out(site, [dropped, grad_input], true)?;
    }
    let grads = updates.iter().zip(whole);
    let of: Vec<_> = grads.filter_map(|(it, t)| Some((t, it.update.lora.a.grad?))).collect();
    if of.is_empty() {
        return Ok(());
    }
    Matrices { matrix, shape, alpha: 1.0, of: &of }.append(builder, saved.x)
}

/// The gradients of matrices that share an operand, each with its other operand.
struct Matrices<'a> {
    matrix: LoraMatrix,
    shape: LoraShape,
    alpha: f32,
    of: &'a [(Slice<f32>, Slice<f32>)],
}

impl Matrices<'_> {
    fn append(&self, builder: &mut Builder, x: Slice<f32>) -> Result<()> {
        let Self { matrix, shape, alpha, of } = *self;
        let (splits, accumulate) = (shape.grad_splits(of.len()), builder.accumulates());
        let mut partial = |(t, grad): &(Slice<f32>, Slice<f32>)| {
            let out = match splits {
                1 => *grad,
                _ => builder.transient("grad_runs", splits * grad.len()),
            };
            LoraGradAdapter { t: *t, out }
        };
        let adapters: Vec<_> = of.iter().map(&mut partial).collect();
        let added = accumulate && splits == 1;
        let grad =
            LoraGrad { x, adapters: &adapters, matrix, shape, splits, alpha, accumulate: added };
        builder.launch(grad.launch())?;
        for (update, (_, grad)) in adapters.iter().zip(of).filter(|_| splits > 1) {
            let (x, out, rows, columns) = (update.out, *grad, splits, grad.len());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(())
    }
}
