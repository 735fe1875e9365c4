//! The configuration of a model for inference.

use super::{Mode, ModelConfig, OptimizerConfig, Precision, TrainingConfig};
use crate::error::Result;

/// A model for inference: its architecture, its weights and their dtypes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InferenceConfig {
    /// The model.
    pub model: ModelConfig,
    /// Which weights were trained: these are f32, with bf16 copies if products are in bf16. With
    /// LoRA, the model has updates.
    pub mode: Mode,
    /// The dtypes of products and of frozen weights.
    pub precision: Precision,
    /// Seed of the weights that neither a file nor the caller provides.
    pub seed: u64,
}

impl From<&TrainingConfig> for InferenceConfig {
    fn from(config: &TrainingConfig) -> Self {
        let TrainingConfig { model, mode, precision, seed, .. } = *config;
        Self { model, mode, precision, seed }
    }
}

impl InferenceConfig {
    /// Returns a model without trained weights, in the dtypes of `precision`.
    pub fn frozen(model: ModelConfig, precision: Precision) -> Self {
        Self { model, mode: Mode::Frozen, precision, seed: 0 }
    }

    /// Elements of the norms and factors of all DoRA layers.
    pub(crate) fn dora_norms(&self) -> usize {
        let lora = self.mode.lora().filter(|lora| lora.dora);
        let modules = lora.map_or(Vec::new(), |lora| lora.modules(&self.model));
        modules.iter().map(|module| 2 * self.model.projection(module.projection)[1]).sum()
    }

    /// Checks every value, and that a pass over `rows` tokens fits the 32-bit sizes of the kernels.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) with the invalid value.
    pub fn validate(&self, rows: usize) -> Result<()> {
        let Self { model, mode, precision, seed } = *self;
        let optimizer = OptimizerConfig::new(0.0, 1);
        // A training step with one sequence has activations of the same sizes.
        let sizes = TrainingConfig { model, mode, precision, batch: 1, seq: rows, optimizer, seed };
        sizes.validate_sizes()
    }
}
