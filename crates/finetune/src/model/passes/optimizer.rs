//! Gradient clipping by the global norm, learning-rate schedule and AdamW, all on the device.
//!
//! A loss or norm that is not finite sets the halt flag. From then on, no step changes the state,
//! so the host can read the state from before the failed step.

use std::collections::HashSet;

use retrograph_kernels::ops::{
    AdamW, AdamWTensor, ClipFactor, GradNormPartials, Guard, LrSchedule, TensorView,
    grad_norm_partials_len,
};
use retrograph_runtime::{BufferId, CollectiveGroup, Slice};

use crate::config::OptimizerConfig;
use crate::error::Result;
use crate::model::builder::{Builder, ParameterBuffers, TrainableBuffers};
use crate::model::exchange::Exchange;
use crate::model::squares::GradientSquares;
use crate::parameters::Sharding;

/// The scalars that clipping and optimizer read and write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars {
    pub(super) step: Slice<u32>,
    pub(super) loss: Slice<f32>,
    pub(super) norm: Slice<f32>,
    pub(super) halt: Slice<u32>,
}

/// Appends clipping and the update of every trained parameter. With several ranks, each rank
/// updates its blocks, and the ranks exchange them.
pub(super) fn update(
    builder: &mut Builder,
    optimizer: &OptimizerConfig,
    scalars: Scalars,
    sharding: Sharding,
) -> Result<()> {
    let scale = clip_factor(builder, optimizer.max_norm, scalars, sharding)?;
    builder.scope("optimizer");
    let values = builder.transient("scalars", LrSchedule::<()>::SCALARS);
    let rate = optimizer.rate();
    builder.launch(
        LrSchedule {
            step: scalars.step,
            scalars: values,
            peak_lr: rate.peak_lr,
            min_lr: rate.min_lr,
            warmup_steps: rate.warmup_steps,
            decay_start: rate.decay_start,
            total_steps: rate.total_steps,
            decay: rate.decay,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
        }
        .launch(),
    )?;
    // The embedding is updated first: its blocks are exchanged while the others are updated.
    let (first, rest): (Vec<usize>, Vec<usize>) = (0..builder.parameters.len())
        .partition(|&at| sharding.gathers_at_once(&builder.parameters[at].parameter));
    let mut before = None;
    for members in [first, rest] {
        let held: Vec<_> = members.iter().map(|&member| &builder.parameters[member]).collect();
        let tensors: Vec<_> =
            held.iter().filter_map(|held| tensor(held, optimizer.weight_decay)).collect();
        if tensors.is_empty() {
            continue;
        }
        let update = AdamW {
            tensors: &tensors,
            scalars: values,
            halt: Some(scalars.halt),
            grad_scale: Some(scale),
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.eps,
        };
        let mut group = CollectiveGroup::new(sharding.ranks());
        for held in held {
            if sharding.gathers_at_once(&held.parameter) {
                group = group.all_gather(held.value.floats())?;
            }
        }
        let update = builder.pass.launch(update.launch()?)?;
        if let Some(before) = before.replace(update) {
            // Otherwise both could run concurrently, and the exchange would wait for both.
            builder.pass.order(before, update)?;
        }
        if !group.is_empty() {
            builder.pass.collectives(group)?;
        }
    }
    Ok(())
}

/// Appends the gradient norm, without an update.
pub(super) fn norm(builder: &mut Builder, scalars: Scalars) -> Result<()> {
    clip_factor(builder, f32::INFINITY, scalars, Sharding::NONE).map(drop)
}

/// Appends the exchange of the blocks that the previous step updated and this step reads, in the
/// order in which the forward pass reads them. The forward pass starts after the first group, so
/// groups start small: each is complete with twice the bytes of the previous one, up to
/// `bucket_bytes`.
pub(super) fn gather(builder: &mut Builder, sharding: Sharding, bucket_bytes: usize) -> Result<()> {
    let (parameters, ranks) = (&builder.parameters, sharding.ranks());
    let (head, layers): (Vec<&ParameterBuffers>, Vec<_>) = parameters
        .iter()
        .filter(|held| sharding.is_sharded(&held.parameter))
        .partition(|held| sharding.gathers_at_once(&held.parameter));
    let (mut groups, mut group) = (Vec::new(), CollectiveGroup::new(ranks));
    let mut complete = bucket_bytes / 16;
    // The copy of a table that is also the output projection is read last.
    for held in layers.into_iter().chain(head) {
        group = match held.value.copy() {
            Some(copy) => group.all_gather(copy)?,
            None if sharding.gathers_at_once(&held.parameter) => group,
            None => group.all_gather(held.value.floats())?,
        };
        if group.bytes() >= complete {
            complete = (2 * complete).min(bucket_bytes);
            groups.push(std::mem::replace(&mut group, CollectiveGroup::new(ranks)));
        }
    }
    groups.push(group);
    builder.scope("weights");
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        builder.pass.collectives(group)?;
    }
    Ok(())
}

/// The block of a trained parameter that this rank updates.
fn tensor(held: &ParameterBuffers, decay: f32) -> Option<AdamWTensor<BufferId>> {
    let TrainableBuffers { grad, block, exp_avg: first, exp_avg_sq: second } =
        held.trained.clone()?;
    Some(AdamWTensor {
        param: held.value.floats().slice(block.clone()),
        grad: grad.slice(block.clone()).into(),
        exp_avg: first,
        exp_avg_sq: second,
        copy: held.value.copy().map(|copy| copy.slice(block)),
        weight_decay: if held.parameter.decayed { decay } else { 0.0 },
    })
}

/// Appends the norm of all gradients and the factor that clips them to `max_norm`. Every rank adds
/// the same squared sums in the same order.
fn clip_factor(
    builder: &mut Builder,
    max_norm: f32,
    scalars: Scalars,
    sharding: Sharding,
) -> Result<Slice<f32>> {
    builder.scope("clip");
    let partials = match builder.squares.take() {
        Some(squares) => remaining_squares(builder, squares)?,
        None => squares_of_all_ranks(builder, sharding)?,
    };
    let scale = builder.transient("scale", 1);
    let Scalars { step, loss, norm, halt } = scalars;
    let guard = Some(Guard { loss, step, halt });
    builder.launch(ClipFactor { partials, max_norm, scale, norm, guard }.launch())?;
    Ok(scale)
}

/// Appends the squared sums of the gradients whose products did not write them. Returns the sums of
/// all gradients.
fn remaining_squares(builder: &mut Builder, mut squares: GradientSquares) -> Result<Slice<f64>> {
    let trained = builder.parameters.iter().filter_map(|held| held.trained.as_ref());
    let missed = trained.map(|trained| trained.grad).filter(|grad| squares.misses(*grad));
    let tensors: Vec<TensorView<BufferId>> = missed.map(TensorView::from).collect();
    let lens: Vec<usize> = tensors.iter().map(|tensor| tensor.len()).collect();
    let partials = squares.next(grad_norm_partials_len(&lens));
    if !tensors.is_empty() {
        builder.launch(GradNormPartials { tensors: &tensors, partials }.launch())?;
    }
    Ok(squares.all())
}

/// Appends the squared sums of all gradients. Replicated parameters come first. The sums of sharded
/// parameters follow rank by rank; the ranks exchange them.
///
/// The gradients that are exchanged last have a launch of their own, so that the others are read
/// meanwhile.
fn squares_of_all_ranks(builder: &mut Builder, sharding: Sharding) -> Result<Slice<f64>> {
    let late: HashSet<usize> = builder.exchange.iter().flat_map(Exchange::late).collect();
    let mut lists: [Vec<TensorView<BufferId>>; 3] = Default::default();
    for (number, held) in builder.parameters.iter().enumerate() {
        let Some(TrainableBuffers { grad, block, .. }) = held.trained.clone() else { continue };
        let [whole, early_blocks, late_blocks] = &mut lists;
        let list = match sharding.is_sharded(&held.parameter) {
            false => whole,
            true if late.contains(&number) => late_blocks,
            true => early_blocks,
        };
        list.push(grad.slice(block).into());
    }
    let [of_whole, of_early, of_late] = lists.each_ref().map(|list| {
        let lens: Vec<usize> = list.iter().map(TensorView::len).collect();
        grad_norm_partials_len(&lens)
    });
    let ranks = sharding.ranks();
    let len = of_whole + ranks.world_size * (of_early + of_late);
    let partials = builder.pass.transient::<f64>("clip/partials", len);
    let blocks = partials.slice(of_whole..len);
    let own = blocks.slice(ranks.block(blocks.len()));
    let places = [
        partials.slice(0..of_whole),
        own.slice(0..of_early),
        own.slice(of_early..of_early + of_late),
    ];
    for (tensors, partials) in lists.iter().zip(places).filter(|(list, _)| !list.is_empty()) {
        builder.launch(GradNormPartials { tensors, partials }.launch())?;
    }
    if !blocks.is_empty() {
        builder.pass.collectives(CollectiveGroup::new(ranks).all_gather(blocks)?)?;
    }
    Ok(partials)
}
