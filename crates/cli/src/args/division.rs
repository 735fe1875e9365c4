//! The arguments by which a step takes less memory or less time than its batch as a whole.

use clap::Args;
use retrograph_finetune::model::StepOptions;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DivisionArguments {
    /// Compute so many sequences of a batch together, one part after another, and add their
    /// gradients; a divisor of --batch [default: all of them].
    #[arg(long, value_name = "SEQUENCES")]
    micro_batch: Option<usize>,
    /// Compute a batch in so many parts side by side, of which one uses what the other leaves of
    /// the GPU, and add their gradients; a divisor of --batch [default: 2 where that was measured
    /// to be faster, else 1].
    #[arg(long, value_name = "PARTS", conflicts_with = "micro_batch")]
    interleave: Option<usize>,
    /// Compute each layer again in the backward pass instead of keeping what it needs; the same
    /// bits.
    #[arg(long)]
    recompute: bool,
}

impl DivisionArguments {
    /// How the step is described.
    pub(crate) fn step(self) -> StepOptions {
        let Self { micro_batch, interleave, recompute } = self;
        StepOptions { micro_batch, interleave, recompute, ..StepOptions::default() }
    }
}
