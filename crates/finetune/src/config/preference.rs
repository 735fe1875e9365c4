//! Configuration of preference training.

use serde::{Deserialize, Serialize};

use super::check::require;
use super::{Mode, TrainingConfig};
use crate::error::{Error, Result};

/// Direct preference optimization (DPO; Rafailov et al., arXiv 2305.18290): the sequences of a
/// batch are pairs, of which the first is preferred to the second.
///
/// The reference is the model without its adapter, so the run must train only LoRA matrices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DpoConfig {
    /// Strength of the pull towards the reference, β: finite and above 0.
    pub beta: f32,
    /// The probability that a label is wrong: at least 0 and below 0.5.
    pub label_smoothing: f32,
}

impl DpoConfig {
    /// Returns DPO with `beta` and without label smoothing.
    pub fn new(beta: f32) -> Self {
        Self { beta, label_smoothing: 0.0 }
    }

    /// Checks the values, and that they can train `config` with micro-batches of `micro_batch`
    /// sequences.
    pub(crate) fn validate(self, config: &TrainingConfig, micro_batch: usize) -> Result<()> {
        let Self { beta, label_smoothing } = self;
        require("beta", beta, beta.is_finite() && beta > 0.0, "finite and above 0")?;
        let wrong = (0.0..0.5).contains(&label_smoothing);
        require("label_smoothing", label_smoothing, wrong, "at least 0 and below 0.5")?;
        let even = micro_batch.is_multiple_of(2);
        require("micro-batch", micro_batch, even, "even, as its sequences are pairs")?;
        match config.mode {
            Mode::Lora(lora) if !lora.trains_base() => Ok(()),
            mode => Err(Error::InvalidConfig {
                field: "mode",
                value: mode
                    .lora()
                    .map_or("full", |_| "lora with trained weights of the model")
                    .to_owned(),
                rule: "lora without norms, embeddings and output projection: the reference is the \
                       model without its adapter"
                    .to_owned(),
            }),
        }
    }
}
