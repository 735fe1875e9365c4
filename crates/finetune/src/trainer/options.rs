//! Options of a trainer.

use retrograph_runtime::BuildOptions;

use crate::model::StepOptions;

/// How a run is carried out; nothing of this changes what it computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainerOptions {
    /// Strategy and memory of the program.
    pub build: BuildOptions,
    /// Whether an eager step runs beside each step on copies, to be compared bit for bit.
    pub verify: bool,
    /// Who keeps the gradients, and how the step saves memory.
    pub step: StepOptions,
    /// How many lengths of sequences a step can have, see [`Lengths`](crate::data::Lengths); 0 is
    /// taken as 1.
    pub lengths: usize,
}
