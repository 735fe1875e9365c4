//! Writing the trained weights: an adapter, or a complete model.

use super::Trainer;
use crate::adapter::{AdapterError, AdapterOutput, write_adapter};
use crate::error::Result;
use crate::export::{ModelOutput, ModelWeights, OnProgress, Written, write_model};
use crate::parameters::Parameter;
use crate::state::frozen_values;

impl Trainer {
    /// Writes the trained LoRA adapter, after all enqueued steps.
    ///
    /// # Errors
    /// [`AdapterError::NotLora`] if all weights are trained. If the adapter cannot be written, an
    /// existing one is unchanged.
    pub fn export_adapter(&self, output: AdapterOutput<'_>) -> Result<()> {
        let lora = self.config.mode.lora().ok_or(AdapterError::NotLora)?;
        let values = &mut |parameter: &Parameter| self.trained(parameter);
        let parameters: Vec<&Parameter> = self.state().parameters().collect();
        write_adapter(output, lora, &parameters, values)
    }

    /// Writes the model, after all enqueued steps. LoRA updates are merged into the original base
    /// weights, not into the quantized weights of the run. `output` and the run have the same
    /// base model.
    ///
    /// # Errors
    /// As [`write_model`], or if the device fails.
    pub fn export_model(&self, output: ModelOutput<'_>, on: OnProgress<'_>) -> Result<Written> {
        let (base, seed) = (self.base.as_ref(), self.config.seed);
        let values = &mut |parameter: &Parameter| match parameter.trainable {
            true => self.trained(parameter),
            false => frozen_values(base, seed, parameter),
        };
        let mut weights = ModelWeights::new(&self.config.model, self.config.mode, values);
        write_model(&mut weights, ModelOutput { base, ..output }, on)
    }

    fn trained(&self, parameter: &Parameter) -> Result<Vec<f32>> {
        let values = self.state().values(&self.stream, &parameter.name)?;
        Ok(values.expect("the state has every parameter that it lists"))
    }
}
