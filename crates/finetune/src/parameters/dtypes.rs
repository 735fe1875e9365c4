//! The dtypes of the parameters of a run.

use super::{Parameter, Storage, inventory};
use crate::config::{Dtype, InferenceConfig, Precision, Projection, Quantization, TrainingConfig};

impl TrainingConfig {
    /// Returns every parameter of the run, with its dtype on the device. Trained parameters, norms
    /// and biases are f32; other matrices have the dtype of `precision`.
    pub fn parameters(&self) -> Vec<Parameter> {
        InferenceConfig::from(self).parameters()
    }
}

impl InferenceConfig {
    /// Returns every parameter of the model, with its dtype on the device, as
    /// [`TrainingConfig::parameters`] does.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = inventory(&self.model, self.mode);
        for parameter in &mut parameters {
            parameter.storage = storage(parameter, self.precision);
        }
        parameters
    }
}

/// Returns the dtype of a parameter on the device.
fn storage(parameter: &Parameter, precision: Precision) -> Storage {
    let matrix = parameter.shape.len() == 2;
    let linear = Projection::ALL
        .into_iter()
        .any(|projection| parameter.name.ends_with(&format!("{}.weight", projection.path())));
    match precision {
        _ if parameter.trainable || !matrix => Storage::F32,
        Precision { quantize: Some(Quantization::Nf4 { double }), .. } if linear => {
            Storage::Nf4 { double }
        }
        Precision { dtype: Dtype::Bf16, .. } => Storage::Bf16,
        Precision { dtype: Dtype::F32, .. } => Storage::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, OptimizerConfig, Preset};
    use crate::parameters::{EMBEDDING, FINAL_NORM, layer_name};

    #[test]
    fn only_frozen_matrices_are_stored_in_fewer_bits_and_only_linear_layers_are_quantized() {
        let mode = Mode::Lora(LoraConfig::new(8, 32.0));
        let optimizer = OptimizerConfig::new(1e-3, 1);
        let stored = |precision| {
            let model = Preset::Tiny.model();
            let config =
                TrainingConfig { model, mode, precision, batch: 1, seq: 1, optimizer, seed: 0 };
            move |name: &str| {
                let found = config.parameters().into_iter().find(|p| p.name == name);
                found.unwrap().storage
            }
        };
        let linear = layer_name(0, "mlp.down_proj.weight");
        let a = layer_name(0, "self_attn.q_proj.lora_A.weight");
        let bias = layer_name(0, "self_attn.q_proj.bias");
        let rounded = stored(Precision::BF16);
        let expected = [Storage::Bf16, Storage::Bf16, Storage::F32, Storage::F32];
        assert_eq!([EMBEDDING, &linear, &a, &bias].map(rounded), expected);
        let quantized = stored(Precision::BF16.nf4(true));
        let nf4 = Storage::Nf4 { double: true };
        let expected = [Storage::Bf16, nf4, Storage::F32, Storage::F32];
        assert_eq!([EMBEDDING, &linear, &a, FINAL_NORM].map(quantized), expected);
        // 65 elements: 33 bytes of codes, two scales, and for nested ones a scale and a mean.
        assert_eq!(Storage::Nf4 { double: false }.bytes(65), 33 + 8);
        assert_eq!(nf4.bytes(65), 33 + 2 + 8);
    }
}
