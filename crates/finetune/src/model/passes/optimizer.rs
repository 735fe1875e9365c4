//! Gradient clipping by the global norm, learning-rate schedule and AdamW, all on the device.
//!
//! A loss or norm that is not finite sets the halt flag. From then on no step changes the state, so
//! that the host reads the state before the failed step.

use retrograph_kernels::ops::{
    AdamW, AdamWTensor, ClipScale, Guard, Schedule, SquaredSums, squared_sums_partials,
};
use retrograph_runtime::{BufferId, CollectiveGroup, Slice};

use crate::config::OptimizerConfig;
use crate::error::Result;
use crate::model::builder::{Builder, ParameterBuffers, TrainableBuffers};
use crate::parameters::Sharding;

/// The scalars that clipping and optimizer read and write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars {
    pub(super) step: Slice<u32>,
    pub(super) loss: Slice<f32>,
    pub(super) norm: Slice<f32>,
    pub(super) halt: Slice<u32>,
}

/// Appends clipping and the update of every trained parameter. With several ranks, each updates its
/// blocks, and the ranks exchange them.
pub(super) fn update(
    builder: &mut Builder,
    optimizer: &OptimizerConfig,
    (scalars, sharding): (Scalars, Sharding),
) -> Result<()> {
    let scale = clip_scale(builder, (optimizer.max_norm, scalars), sharding)?;
    builder.scope("optimizer");
    let values = builder.transient("scalars", Schedule::<()>::SCALARS);
    let rate = optimizer.rate();
    builder.launch(
        Schedule {
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
    for members in together(builder, sharding) {
        let held = members.iter().map(|&member| &builder.parameters[member]);
        let tensors: Vec<_> =
            held.filter_map(|held| tensor(held, optimizer.weight_decay)).collect();
        builder.scope("optimizer");
        builder.launch(
            AdamW {
                tensors: &tensors,
                scalars: values,
                halt: Some(scalars.halt),
                grad_scale: Some(scale),
                beta1: optimizer.beta1,
                beta2: optimizer.beta2,
                eps: optimizer.eps,
            }
            .launch(),
        )?;
        gather(builder, &members, sharding)?;
    }
    Ok(())
}

/// Appends the gradient norm, without an update.
pub(super) fn norm(builder: &mut Builder, scalars: Scalars) -> Result<()> {
    clip_scale(builder, (f32::INFINITY, scalars), Sharding::NONE).map(drop)
}

/// The parameters that one launch updates: those whose gradients were exchanged together if their
/// blocks are exchanged afterwards, so that the next ones are updated meanwhile; otherwise all.
fn together(builder: &Builder, sharding: Sharding) -> Vec<Vec<usize>> {
    let all = || (0..builder.parameters.len()).collect();
    let sharded = builder.parameters.iter().any(|held| sharding.is_sharded(&held.parameter));
    match &builder.exchange {
        Some(exchange) if sharded => {
            exchange.groups.iter().map(|group| group.members.clone()).collect()
        }
        _ => vec![all()],
    }
}

/// Appends the exchange of updated blocks of `members`, as far as steps read them.
fn gather(builder: &mut Builder, members: &[usize], sharding: Sharding) -> Result<()> {
    let mut group = CollectiveGroup::new(sharding.ranks());
    for held in members.iter().map(|&member| &builder.parameters[member]) {
        if !sharding.is_sharded(&held.parameter) {
            continue;
        }
        if let Some(copy) = held.value.copy() {
            group = group.all_gather(copy)?;
        }
        if sharding.gathers_f32(&held.parameter) {
            group = group.all_gather(held.value.floats())?;
        }
    }
    if !group.is_empty() {
        builder.scope("weights");
        builder.pass.collectives(group)?;
    }
    Ok(())
}

/// The block of a trained parameter that this rank updates.
fn tensor(held: &ParameterBuffers, decay: f32) -> Option<AdamWTensor<BufferId>> {
    let TrainableBuffers { grad, block, first, second } = held.trained.clone()?;
    Some(AdamWTensor {
        param: held.value.floats().slice(block.clone()),
        grad: grad.slice(block.clone()),
        first,
        second,
        copy: held.value.copy().map(|copy| copy.slice(block)),
        weight_decay: if held.parameter.decayed { decay } else { 0.0 },
    })
}

/// Appends the norm of all gradients and the factor that clips them to `max_norm`. Every rank adds
/// the same squared sums in the same order: those of replicated parameters, and then those of the
/// blocks of each rank.
fn clip_scale(
    builder: &mut Builder,
    (max_norm, scalars): (f32, Scalars),
    sharding: Sharding,
) -> Result<Slice<f32>> {
    builder.scope("clip");
    let trained = builder.parameters.iter().filter_map(|held| {
        let TrainableBuffers { grad, block, .. } = held.trained.clone()?;
        Some((sharding.is_sharded(&held.parameter), grad.slice(block)))
    });
    let (blocks, whole): (Vec<_>, Vec<_>) = trained.partition(|(is_sharded, _)| *is_sharded);
    let [whole, blocks] =
        [whole, blocks].map(|all| all.into_iter().map(|(_, grad)| grad).collect::<Vec<_>>());
    let [of_whole, of_block] = [&whole, &blocks].map(|grads| {
        let lens: Vec<usize> = grads.iter().map(|grad| grad.len()).collect();
        squared_sums_partials(&lens)
    });
    let ranks = sharding.ranks();
    let len = of_whole + ranks.count * of_block;
    let partials = builder.pass.transient::<f64>("clip/partials", len);
    if !whole.is_empty() {
        let partials = partials.slice(0..of_whole);
        builder.launch(SquaredSums { tensors: &whole, partials }.launch())?;
    }
    if !blocks.is_empty() {
        let all = partials.slice(of_whole..len);
        let partials = all.slice(ranks.block(all.len()));
        builder.launch(SquaredSums { tensors: &blocks, partials }.launch())?;
        builder.pass.collectives(CollectiveGroup::new(ranks).all_gather(all)?)?;
    }
    let scale = builder.transient("scale", 1);
    let Scalars { step, loss, norm, halt } = scalars;
    let guard = Some(Guard { loss, step, halt });
    builder.launch(ClipScale { partials, max_norm, scale, norm, guard }.launch())?;
    Ok(scale)
}
