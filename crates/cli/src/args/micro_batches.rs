//! The arguments for micro-batches and recomputation.

use clap::Args;
use retrograph_finetune::model::StepOptions;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MicroBatchArguments {
    /// Sequences per micro-batch, a divisor of --batch. Micro-batches run one after another and
    /// accumulate gradients, which saves memory [default: --batch].
    #[arg(long, value_name = "SEQUENCES")]
    micro_batch: Option<usize>,
    /// Number of micro-batches that run concurrently in one graph, a divisor of --batch [default: 2
    /// if benchmarks show a speedup, else 1].
    #[arg(long, value_name = "N", conflicts_with = "micro_batch")]
    interleave: Option<usize>,
    /// Recompute each layer in the backward pass instead of storing its activations. Saves memory;
    /// the results have the same bits.
    #[arg(long)]
    recompute: bool,
}

impl MicroBatchArguments {
    /// Returns the options of the step.
    pub(crate) fn step(self) -> StepOptions {
        let Self { micro_batch, interleave, recompute } = self;
        StepOptions { micro_batch, interleave, recompute, ..StepOptions::default() }
    }
}
