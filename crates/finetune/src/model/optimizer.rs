//! The end of the step: global-norm clipping, schedule and AdamW, all on the device.
//!
//! The norm is taken over every gradient of the model at once. A loss or norm that is not finite
//! sets the halt flag, after which nothing of the state changes any more: what the host reads later
//! is what it was before the step that went wrong.

use retrograph_kernels::ops::{
    AdamW, AdamWTensor, Clip, ClipScale, Guard, Schedule, SquaredSums, squared_sums_partials,
};
use retrograph_runtime::{BufferId, Slice};

use super::builder::Builder;
use crate::error::Result;

/// The scalars that the end of the step reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars {
    pub(super) step: Slice<u32>,
    pub(super) loss: Slice<f32>,
    pub(super) norm: Slice<f32>,
    pub(super) halt: Slice<u32>,
}

/// Appends clipping and the update of every trained parameter.
pub(super) fn update(builder: &mut Builder, scalars: Scalars) -> Result<()> {
    let grads: Vec<_> = trained(builder).map(|tensor| tensor.grad).collect();
    let scale = clip_scale(builder, &grads, scalars)?;
    builder.launch(Clip { tensors: &grads, scale }.launch())?;
    builder.scope("optimizer");
    let optimizer = builder.config.optimizer;
    let values = builder.transient("scalars", Schedule::<()>::SCALARS);
    builder.launch(
        Schedule {
            step: scalars.step,
            scalars: values,
            peak_lr: optimizer.peak_lr,
            min_lr: optimizer.min_lr,
            warmup_steps: optimizer.warmup_steps,
            total_steps: optimizer.total_steps,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
        }
        .launch(),
    )?;
    let tensors: Vec<_> = trained(builder).collect();
    builder.launch(
        AdamW {
            tensors: &tensors,
            scalars: values,
            halt: Some(scalars.halt),
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.eps,
        }
        .launch(),
    )
}

fn trained(builder: &Builder) -> impl Iterator<Item = AdamWTensor<BufferId>> {
    let decay = builder.config.optimizer.weight_decay;
    builder.parameters.iter().filter_map(move |held| {
        let buffers = held.trained?;
        Some(AdamWTensor {
            param: held.value.floats(),
            grad: buffers.grad,
            first: buffers.first,
            second: buffers.second,
            weight_decay: if held.parameter.decayed { decay } else { 0.0 },
        })
    })
}

/// Appends the norm over all `grads` and the factor that limits it.
fn clip_scale(builder: &mut Builder, grads: &[Slice<f32>], scalars: Scalars) -> Result<Slice<f32>> {
    builder.scope("clip");
    let lens: Vec<usize> = grads.iter().map(|grad| grad.len()).collect();
    let partials = builder.pass.transient("clip/partials", squared_sums_partials(&lens));
    builder.launch(SquaredSums { tensors: grads, partials }.launch())?;
    let scale = builder.transient("scale", 1);
    let max_norm = builder.config.optimizer.max_norm;
    let Scalars { step, loss, norm, halt } = scalars;
    let guard = Some(Guard { loss, step, halt });
    builder.launch(ClipScale { partials, max_norm, scale, norm, guard }.launch())?;
    Ok(scale)
}
