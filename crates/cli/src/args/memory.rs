//! The arguments by which a step takes less memory and more time.

use clap::Args;
use retrograph_finetune::model::StepOptions;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArguments {
    /// Compute so many sequences of a batch together and add their gradients; a divisor of --batch
    /// [default: all of them].
    #[arg(long, value_name = "SEQUENCES")]
    pub(crate) micro_batch: Option<usize>,
    /// Compute each layer again in the backward pass instead of keeping what it needs; the same
    /// bits.
    #[arg(long)]
    recompute: bool,
}

impl MemoryArguments {
    /// How the step is described.
    pub(crate) fn step(self) -> StepOptions {
        let Self { micro_batch, recompute } = self;
        StepOptions { micro_batch, recompute, ..StepOptions::default() }
    }
}
