//! Options of a trainer.

use retrograph_runtime::BuildOptions;

use crate::model::StepOptions;

/// Options of a trainer. Only micro-batches and lengths change the results, and only by rounding.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TrainerOptions {
    /// Strategy and memory reuse of the programs.
    pub build: BuildOptions,
    /// Whether each step also runs eagerly on a copy of the model, and is compared bit for bit.
    pub verify: bool,
    /// Gradients, micro-batches and recomputation.
    pub step: StepOptions,
    /// Number of sequence lengths of a step, see [`Lengths`](crate::data::Lengths); 0 counts as 1.
    pub lengths: usize,
}
