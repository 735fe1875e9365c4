//! The passes: training step, evaluation, forward pass, prefill and decode.

mod evaluation;
mod forward;
mod generation;
mod metrics;
mod optimizer;
mod options;
mod preference;
mod training;

pub use evaluation::LossPass;
pub use forward::ForwardPass;
pub use generation::{GenerationPass, SAMPLED, TokenSource};
pub use metrics::{METRICS, MetricsLayout};
pub(super) use options::MIN_DECODED_ROWS;
pub use options::{GradientOwner, MicroBatching, StepOptions};
pub use training::{StepControls, StepInput, StepPass};

/// Number of launches of `kernels` in `pass`.
#[cfg(test)]
fn count(pass: &retrograph_runtime::Pass, kernels: &[&retrograph_kernels::Kernel]) -> usize {
    let launches = |operation: &&retrograph_runtime::Operation| match operation.kind() {
        retrograph_runtime::OperationKind::Launch(launch) => kernels.contains(&launch.kernel()),
        _ => false,
    };
    pass.operations().iter().filter(launches).count()
}
