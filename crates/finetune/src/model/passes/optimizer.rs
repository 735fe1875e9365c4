//! Gradient clipping by the global norm, learning-rate schedule and AdamW, all on the device.
//!
//! A loss or norm that is not finite sets the halt flag. From then on no step changes the state, so
//! that the host reads the state before the failed step.

use retrograph_kernels::ops::{
    AdamW, AdamWTensor, ClipScale, Guard, Schedule, SquaredSums, squared_sums_partials,
};
use retrograph_runtime::{BufferId, Slice};

use crate::config::OptimizerConfig;
use crate::error::Result;
use crate::model::builder::Builder;

/// The scalars that clipping and optimizer read and write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars {
    pub(super) step: Slice<u32>,
    pub(super) loss: Slice<f32>,
    pub(super) norm: Slice<f32>,
    pub(super) halt: Slice<u32>,
}

/// Appends clipping and the update of every trained parameter.
pub(super) fn update(
    builder: &mut Builder,
    optimizer: &OptimizerConfig,
    scalars: Scalars,
) -> Result<()> {
    let tensors: Vec<_> = trained(builder, optimizer.weight_decay).collect();
    let grads: Vec<_> = tensors.iter().map(|tensor| tensor.grad).collect();
    let scale = clip_scale(builder, &grads, (optimizer.max_norm, scalars))?;
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
    )
}

fn trained(builder: &Builder, decay: f32) -> impl Iterator<Item = AdamWTensor<BufferId>> {
    builder.parameters.iter().filter_map(move |held| {
        let buffers = held.trained?;
        Some(AdamWTensor {
            param: held.value.floats(),
            grad: buffers.grad,
            first: buffers.first,
            second: buffers.second,
            copy: held.value.copy(),
            weight_decay: if held.parameter.decayed { decay } else { 0.0 },
        })
    })
}

/// Appends the norm of all `grads` and the factor that clips them to `max_norm`.
fn clip_scale(
    builder: &mut Builder,
    grads: &[Slice<f32>],
    (max_norm, scalars): (f32, Scalars),
) -> Result<Slice<f32>> {
    builder.scope("clip");
    let lens: Vec<usize> = grads.iter().map(|grad| grad.len()).collect();
    let partials = builder.pass.transient("clip/partials", squared_sums_partials(&lens));
    builder.launch(SquaredSums { tensors: grads, partials }.launch())?;
    let scale = builder.transient("scale", 1);
    let Scalars { step, loss, norm, halt } = scalars;
    let guard = Some(Guard { loss, step, halt });
    builder.launch(ClipScale { partials, max_norm, scale, norm, guard }.launch())?;
    Ok(scale)
}
