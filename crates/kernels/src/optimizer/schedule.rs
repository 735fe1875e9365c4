//! The learning-rate schedule, computed on the device from the step number.

use retrograph_kernel_abi::optimizer as abi;

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`LrSchedule`].
pub static LR_SCHEDULE: Kernel = Kernel::new("lr_schedule", &abi::LR_SCHEDULE, |problem, _| {
    // One warp; only one of its threads computes.
    problem.items().map(|_| linear(abi::LR_SCHEDULE.entry(), 1, 32))
});

/// The shape of the decay of a learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decay {
    /// Half a period of a cosine: `f(p) = (1 + cos(π·p)) / 2`.
    #[default]
    Cosine,
    /// A line: `f(p) = 1 − p`.
    Linear,
}

/// Learning rate (linear warm-up, the peak, then a decay) and bias corrections of a step, for
/// [`AdamW`](crate::optimizer::AdamW).
///
/// With s the step, counted from 0, and t = s + 1:
///
/// ```text
/// lr = peak_lr · (s + 1) / warmup_steps                            for s < warmup_steps
/// lr = peak_lr                                                     for s < decay_start
/// lr = min_lr + (peak_lr − min_lr) · f(p),
///      p = (s − decay_start) / (total_steps − decay_start)         up to total_steps
/// lr = min_lr                                                      afterwards
/// scalars = [lr, lr / (1 − β1^t), 1 / sqrt(1 − β2^t)]
/// ```
/// One thread computes in f64 and rounds once. The rate of step 0 is `peak_lr / warmup_steps`; the
/// rate of the last step of the warm-up and of the next step is `peak_lr`.
#[derive(Clone, Copy, Debug)]
pub struct LrSchedule<B> {
    /// `[1]`, read: the step, counted from 0.
    pub step: View<B, u32>,
    /// `[SCALARS]`, written.
    pub scalars: View<B, f32>,
    /// The rate at the end of the warm-up; finite.
    pub peak_lr: f64,
    /// The rate at the end; finite.
    pub min_lr: f64,
    /// Steps of warm-up; 0 for none.
    pub warmup_steps: u32,
    /// The step at which the decay starts.
    pub decay_start: u32,
    /// The step at which the rate reaches `min_lr`.
    pub total_steps: u32,
    /// The shape `f` of the decay.
    pub decay: Decay,
    /// Decay of the first moment, at least 0 and below 1.
    pub beta1: f64,
    /// Decay of the second moment, at least 0 and below 1.
    pub beta2: f64,
}

impl<B> LrSchedule<B> {
    /// Number of scalars: `lr`, `lr / (1 − β1^t)`, `1 / sqrt(1 − β2^t)`.
    pub const SCALARS: usize = abi::scalar::COUNT;
}

impl<B: Copy> LrSchedule<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `step` or `scalars` has another length, a rate is not finite, or a beta is outside of [0,
    /// 1).
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(LR_SCHEDULE.name);
        check.length("step", self.step, 1)?;
        check.length("scalars", self.scalars, Self::SCALARS)?;
        for (name, rate) in [("peak_lr", self.peak_lr), ("min_lr", self.min_lr)] {
            check.constant(name, rate as f32, rate.is_finite(), "finite")?;
        }
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            let holds = (0.0..1.0).contains(&beta);
            check.constant(name, beta as f32, holds, "at least 0 and below 1")?;
        }
        let parameters = abi::LrScheduleParameters::<ArgumentTypes<B>> {
            step: Pointer::read(self.step),
            scalars: Pointer::write(self.scalars),
            warmup_steps: self.warmup_steps,
            decay_start: self.decay_start,
            linear: self.decay == Decay::Linear,
            total_steps: self.total_steps,
            peak_lr: self.peak_lr,
            min_lr: self.min_lr,
            beta1: self.beta1,
            beta2: self.beta2,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &LR_SCHEDULE, problem: Problem::Items(1), arguments })
    }
}
