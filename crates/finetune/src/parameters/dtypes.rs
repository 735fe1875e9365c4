//! The dtypes of the parameters of a run.

use retrograph_kernels::DType;

use super::{EMBEDDING, HEAD, Parameter, Storage, inventory};
use crate::config::{
    InferenceConfig, ModelConfig, Precision, Projection, Quantization, TrainingConfig,
};

impl TrainingConfig {
    /// Returns every parameter of the run, with its dtype on the device. Trained parameters, norms
    /// and biases are f32; other matrices have the dtype of `precision`. If that is bf16, LoRA
    /// matrices and trained weights of linear layers also have a bf16 copy. If it is f32 with
    /// products in split f16, frozen weights that products of many rows read have the f16 copies of
    /// `precision`.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = InferenceConfig::from(self).parameters();
        if let Some(terms) = self.precision.copied_terms(self.rows()) {
            parameters.iter_mut().for_each(|parameter| add_f16(parameter, &self.model, terms));
        }
        parameters
    }
}

impl InferenceConfig {
    /// Returns every parameter of the model, with its dtype on the device, as
    /// [`TrainingConfig::parameters`] does.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = inventory(&self.model, self.mode);
        for parameter in &mut parameters {
            parameter.storage = storage(parameter, self);
        }
        parameters
    }
}

/// Adds an f16 copy of these `terms` to a frozen matrix of products that is f32 and whose rows and
/// columns are multiples of 8.
fn add_f16(parameter: &mut Parameter, model: &ModelConfig, terms: usize) {
    let Parameter { name, shape, storage, trainable, .. } = parameter;
    let frozen = *storage == Storage::F32 && !*trainable;
    let whole = shape.iter().all(|size| size.is_multiple_of(8));
    let in_products = is_linear(name) || is_head(name, model);
    if frozen && whole && in_products {
        *storage = Storage::F32WithF16 { rows: shape[0], terms };
    }
}

/// Whether `name` is the weight of a linear layer.
fn is_linear(name: &str) -> bool {
    Projection::ALL
        .iter()
        .copied()
        .any(|projection| name.ends_with(&format!("{}.weight", projection.path())))
}

/// Whether `name` is the output projection.
fn is_head(name: &str, model: &ModelConfig) -> bool {
    name == if model.tie_word_embeddings { EMBEDDING } else { HEAD }
}

/// Returns the dtype of a parameter on the device.
fn storage(
    parameter: &Parameter,
    InferenceConfig { model, precision, .. }: &InferenceConfig,
) -> Storage {
    let matrix = parameter.shape.len() == 2;
    let (linear, head) = (is_linear(&parameter.name), is_head(&parameter.name, model));
    let lora = [".lora_A.weight", ".lora_B.weight"].iter().any(|end| parameter.name.ends_with(end));
    let bf16 = precision.dtype == DType::Bf16;
    match *precision {
        _ if lora && bf16 => Storage::F32WithBf16,
        _ if parameter.trainable && bf16 && (linear || head) => Storage::F32WithBf16,
        _ if parameter.trainable || !matrix => Storage::F32,
        Precision { quantize: Some(Quantization::Nf4 { double }), .. } if linear => {
            Storage::Nf4 { double }
        }
        _ if bf16 => Storage::Bf16,
        _ => Storage::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, Preset};
    use crate::parameters::{EMBEDDING, FINAL_NORM, layer_name};

    #[test]
    fn only_frozen_matrices_are_stored_in_fewer_bits_and_only_linear_layers_are_quantized() {
        let stored = |precision| {
            move |name: &str| stored_in(Mode::Lora(LoraConfig::new(8, 32.0)), precision, name)
        };
        let linear = layer_name(0, "mlp.down_proj.weight");
        let a = layer_name(0, "self_attn.q_proj.lora_A.weight");
        let bias = layer_name(0, "self_attn.q_proj.bias");
        let rounded = stored(Precision::BF16);
        let expected = [Storage::Bf16, Storage::Bf16, Storage::F32WithBf16, Storage::F32];
        assert_eq!([EMBEDDING, &linear, &a, &bias].map(rounded), expected);
        let quantized = stored(Precision::BF16.nf4(true));
        let nf4 = Storage::Nf4 { double: true };
        let expected = [Storage::Bf16, nf4, Storage::F32WithBf16, Storage::F32];
        assert_eq!([EMBEDDING, &linear, &a, FINAL_NORM].map(quantized), expected);
        // 65 elements: 33 bytes of codes, two scales, and for nested ones a scale and a mean.
        assert_eq!(Storage::Nf4 { double: false }.bytes(65), 33 + 8);
        assert_eq!(nf4.bytes(65), 33 + 2 + 8);
    }

    fn stored_in(mode: Mode, precision: Precision, name: &str) -> Storage {
        let model = Preset::Tiny.model();
        let config = InferenceConfig { mode, ..InferenceConfig::frozen(model, precision) };
        let found = config.parameters().into_iter().find(|p| p.name == name);
        found.unwrap().storage
    }

    #[test]
    fn trained_weights_of_products_in_bf16_have_a_copy() {
        let linear = layer_name(0, "mlp.down_proj.weight");
        let bias = layer_name(0, "self_attn.q_proj.bias");
        let stored = |precision| {
            [EMBEDDING, &linear, &bias].map(|name| stored_in(Mode::Full, precision, name))
        };
        // The table of a tied model is the output projection.
        let copied = Storage::F32WithBf16;
        assert_eq!(stored(Precision::BF16), [copied, copied, Storage::F32]);
        assert_eq!(stored(Precision::F32), [Storage::F32; 3]);
        assert_eq!(copied.bytes(65), 65 * 6);
    }
}
