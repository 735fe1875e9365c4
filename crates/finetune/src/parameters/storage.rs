//! The dtypes of parameters on the device.

use retrograph_kernels::nf4::{BLOCK, NESTED_BLOCK};

use super::{Parameter, inventory};
use crate::config::{Dtype, InferenceConfig, Precision, Projection, Quantization, TrainingConfig};

/// The dtype of a parameter on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// As f32.
    #[default]
    F32,
    /// As bf16.
    Bf16,
    /// As codes of 4 bits with scales.
    Nf4 {
        /// Whether the scales are quantized in turn.
        double: bool,
    },
}

impl Storage {
    /// Bytes of `len` elements. The map of quantized scales is not counted: a model has one.
    pub fn bytes(self, len: usize) -> usize {
        self.buffers(len).into_iter().sum()
    }

    /// Bytes of each buffer that `len` elements take: values, and scales where there are some.
    pub(crate) fn buffers(self, len: usize) -> Vec<usize> {
        let blocks = len.div_ceil(BLOCK);
        match self {
            Self::F32 => vec![len * size_of::<f32>()],
            Self::Bf16 => vec![len * 2],
            Self::Nf4 { double: false } => vec![len.div_ceil(2), blocks * size_of::<f32>()],
            Self::Nf4 { double: true } => {
                let nested = blocks.div_ceil(NESTED_BLOCK) + 1;
                vec![len.div_ceil(2), blocks, nested * size_of::<f32>()]
            }
        }
    }

    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Nf4 { double: false } => "NF4",
            Self::Nf4 { double: true } => "NF4 with 8-bit scales",
        }
    }
}

impl TrainingConfig {
    /// Returns every parameter of the run, with its dtype on the device: trained parameters, norms
    /// and biases are f32, and `precision` says the dtype of the rest.
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
