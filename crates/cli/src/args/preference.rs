//! The arguments for preference training.

use clap::Args;
use retrograph_finetune::DpoConfig;

use crate::error::CliError;

/// Default of `--dpo-beta`, as in TRL.
const DEFAULT_BETA: f32 = 0.1;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PreferenceArguments {
    /// Train on preferences with DPO: the lines of --data have `prompt`, `chosen` and `rejected`.
    /// The reference is the model without its adapter, so --mode must be lora. --batch counts
    /// pairs.
    #[arg(long, requires = "data", conflicts_with_all = [
        "packing", "buckets", "train_norms", "train_embeddings", "train_head",
    ])]
    pub(crate) dpo: bool,
    /// DPO's β, above 0: a larger β keeps the model closer to the reference [default: 0.1].
    #[arg(long, value_name = "BETA", requires = "dpo")]
    dpo_beta: Option<f32>,
    /// Probability that a preference is wrong, at least 0 and below 0.5 [default: 0].
    #[arg(long, value_name = "PROBABILITY", requires = "dpo")]
    dpo_label_smoothing: Option<f32>,
}

impl PreferenceArguments {
    /// Returns the objective, if the run has preferences.
    pub(crate) fn config(self) -> Option<DpoConfig> {
        self.dpo.then(|| DpoConfig {
            beta: self.dpo_beta.unwrap_or(DEFAULT_BETA),
            label_smoothing: self.dpo_label_smoothing.unwrap_or(0.0),
        })
    }

    /// Fails if all weights are trained (`full`), which leaves no reference.
    pub(crate) fn require_adapter(self, full: bool) -> Result<(), CliError> {
        match self.dpo && full {
            true => Err(CliError::Ignored { option: "--dpo", needed: "--mode lora or --adapter" }),
            false => Ok(()),
        }
    }

    /// Returns the sequences of `batch` examples: a preference has two.
    pub(crate) fn sequences(self, batch: usize) -> usize {
        if self.dpo { batch.saturating_mul(2) } else { batch }
    }
}
