//! The arguments for gradient accumulation, micro-batches and recomputation.

use clap::Args;
use retrograph_finetune::model::StepOptions;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MicroBatchArguments {
    /// Batches whose gradients are accumulated before each update, 1 to 1024. A step has --batch
    /// times N sequences, but needs the memory of --batch.
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    grad_accumulation: u16,
    /// Number of micro-batches that --batch is split into, a divisor of it; they run concurrently
    /// in one graph. Not with --grad-accumulation [default: 1].
    #[arg(long, value_name = "N")]
    interleave: Option<usize>,
    /// Recompute each layer in the backward pass instead of storing its activations. Saves memory;
    /// results are bitwise equal.
    #[arg(long)]
    recompute: bool,
}

impl MicroBatchArguments {
    /// Returns the options of a step that accumulates gradients of `batch` sequences at a time.
    pub(crate) fn step(self, batch: usize) -> StepOptions {
        let Self { grad_accumulation, interleave, recompute } = self;
        let mut options = StepOptions::default();
        options.micro_batch = (grad_accumulation > 1).then_some(batch);
        options.interleave = interleave;
        options.recompute = recompute;
        options
    }

    /// Returns the number of sequences per step. Saturates, so that a later check still fails.
    pub(crate) fn sequences(self, batch: usize) -> usize {
        batch.saturating_mul(usize::from(self.grad_accumulation))
    }
}
