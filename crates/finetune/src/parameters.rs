//! The inventory of parameters: names as Hugging Face's Qwen2, Qwen3 and Llama have them, shapes,
//! and what is trained.
//!
//! Matrices are `[outputs, inputs]`, row-major. There is no `lm_head.weight` where the token table
//! is also the output projection.

mod storage;

pub use storage::Storage;

use crate::config::{LoraConfig, Mode, ModelConfig, Projection};

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element is this.
    Constant(f32),
    /// Normal around 0 with this standard deviation.
    Normal(f32),
    /// Uniform between minus and plus this.
    Uniform(f32),
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, for example `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Whether the optimizer changes it.
    pub trainable: bool,
    /// Whether decoupled weight decay applies: to matrices, not to norms and biases.
    pub decayed: bool,
    /// How it starts.
    pub init: Init,
    /// In which form it is kept on the device.
    pub storage: Storage,
}

impl Parameter {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the elements on the device.
    pub fn bytes(&self) -> usize {
        self.storage.bytes(self.len())
    }
}

/// The name of a layer's parameter; `part` is for example `mlp.up_proj.weight`.
pub fn layer_name(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

/// The token table, which is also the output projection where the model ties them.
pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// The gain of the norm before the output projection.
pub const FINAL_NORM: &str = "model.norm.weight";
/// The output projection, where it is not the token table.
pub const HEAD: &str = "lm_head.weight";

/// Standard deviation of every randomly initialized base weight: the square root of 2 / (5 · width)
/// from Nguyen and Salazar, "Transformers without Tears", which is about 0.02 at Qwen2's widths.
fn deviation(hidden: usize) -> f32 {
    (0.4 / hidden as f32).sqrt()
}

/// Every parameter of the model in `mode`, all of them in f32, in the order in which the forward
/// pass meets them.
pub fn inventory(model: &ModelConfig, mode: Mode) -> Vec<Parameter> {
    let deviation = deviation(model.hidden);
    let (full, lora) = (mode.is_full(), mode.lora());
    let mut list = List { full, lora, deviation, parameters: Vec::new() };
    list.matrix(EMBEDDING.to_owned(), [model.vocab, model.hidden]);
    for layer in 0..model.layers {
        list.layer(model, layer);
    }
    let trainable = list.full;
    list.norm(FINAL_NORM.to_owned(), model.hidden, trainable);
    if !model.tied {
        list.matrix(HEAD.to_owned(), [model.vocab, model.hidden]);
    }
    list.parameters
}

struct List {
    full: bool,
    lora: Option<LoraConfig>,
    deviation: f32,
    parameters: Vec<Parameter>,
}

impl List {
    fn layer(&mut self, model: &ModelConfig, layer: usize) {
        let name = |part: &str| layer_name(layer, part);
        let norms = self.lora.map_or(self.full, |lora| lora.norms);
        self.norm(name("input_layernorm.weight"), model.hidden, norms);
        for projection in Projection::ALL {
            if projection == Projection::O && model.qk_norm {
                for head in ["q_norm", "k_norm"] {
                    let name = name(&format!("self_attn.{head}.weight"));
                    self.norm(name, model.head_dim(), self.full);
                }
            }
            if projection == Projection::Gate {
                self.norm(name("post_attention_layernorm.weight"), model.hidden, norms);
            }
            let prefix = name(&projection.path());
            self.projection(&prefix, model, projection);
        }
    }

    /// The weight of a projection, its bias and its low-rank update, where it has them.
    fn projection(&mut self, prefix: &str, model: &ModelConfig, projection: Projection) {
        let [inputs, outputs] = model.projection(projection);
        let full = |kind: &str| format!("{prefix}.{kind}");
        self.matrix(full("weight"), [outputs, inputs]);
        if model.qkv_bias && projection.is_qkv() {
            self.bias(full("bias"), outputs);
        }
        let lora = self.lora.filter(|lora| lora.targets.has(projection));
        if let Some(LoraConfig { rank, .. }) = lora {
            self.lora(full("lora_A.weight"), full("lora_B.weight"), [outputs, rank, inputs]);
        }
    }

    fn matrix(&mut self, name: String, shape: [usize; 2]) {
        let init = Init::Normal(self.deviation);
        self.push(name, &shape, (self.full, true, init));
    }

    fn bias(&mut self, name: String, len: usize) {
        self.push(name, &[len], (self.full, false, Init::Constant(0.0)));
    }

    fn norm(&mut self, name: String, len: usize, trainable: bool) {
        self.push(name, &[len], (trainable, false, Init::Constant(1.0)));
    }

    /// `A` starts as a linear layer of that input width usually does and `B` at zero, so that
    /// training starts from the base model.
    fn lora(&mut self, a: String, b: String, [outputs, rank, inputs]: [usize; 3]) {
        let bound = 1.0 / (inputs as f32).sqrt();
        self.push(a, &[rank, inputs], (true, true, Init::Uniform(bound)));
        self.push(b, &[outputs, rank], (true, true, Init::Constant(0.0)));
    }

    fn push(
        &mut self,
        name: String,
        shape: &[usize],
        (trainable, decayed, init): (bool, bool, Init),
    ) {
        let (shape, storage) = (shape.to_vec(), Storage::F32);
        self.parameters.push(Parameter { name, shape, trainable, decayed, init, storage });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraTargets, Preset};

    fn count(parameters: &[Parameter], keep: impl Fn(&Parameter) -> bool) -> usize {
        parameters.iter().filter(|p| keep(p)).map(Parameter::len).sum()
    }

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        let total = |preset: Preset| count(&inventory(&preset.model(), Mode::Full), |_| true);
        assert_eq!(total(Preset::Qwen25Half), 494_032_768);
        assert_eq!(total(Preset::Qwen25OneAndHalf), 1_543_714_304);
    }

    #[test]
    fn lora_trains_low_rank_matrices_and_the_norms_of_the_layers_only() {
        let lora = LoraConfig { norms: true, ..LoraConfig::new(8, 32.0) };
        let mode = Mode::Lora(lora);
        let parameters = inventory(&Preset::Tiny.model(), mode);
        for parameter in &parameters {
            let name = &parameter.name;
            let expected = name.contains("lora_") || name.ends_with("layernorm.weight");
            assert_eq!(parameter.trainable, expected, "{name}");
        }
        let per_layer = 8 * (64 + 64) + 8 * (64 + 32) + 2 * 64;
        assert_eq!(count(&parameters, |p| p.trainable), 2 * per_layer);
        let frozen = Mode::Lora(LoraConfig { norms: false, ..lora });
        let parameters = inventory(&Preset::Tiny.model(), frozen);
        assert_eq!(count(&parameters, |p| p.trainable), 2 * (per_layer - 2 * 64));
    }

    #[test]
    fn every_projection_can_have_a_low_rank_update_of_its_widths() {
        let lora = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(8, 32.0) };
        let parameters = inventory(&Preset::Tiny.model(), Mode::Lora(lora));
        let widths = [64 + 64, 64 + 32, 64 + 32, 64 + 64, 64 + 176, 64 + 176, 176 + 64];
        let expected: usize = widths.into_iter().map(|width| 8 * width).sum();
        assert_eq!(count(&parameters, |p| p.trainable), 2 * expected);
        let shape = |name: &str| {
            let found = parameters.iter().find(|p| p.name == layer_name(1, name));
            found.map(|p| p.shape.clone()).unwrap()
        };
        assert_eq!(shape("mlp.down_proj.lora_A.weight"), [8, 176]);
        assert_eq!(shape("mlp.down_proj.lora_B.weight"), [64, 8]);
        assert_eq!(shape("self_attn.k_proj.lora_B.weight"), [32, 8]);
    }

    #[test]
    fn names_are_unique_and_only_matrices_decay() {
        let parameters = inventory(&Preset::Tiny.model(), Mode::Full);
        let names: std::collections::HashSet<_> = parameters.iter().map(|p| &p.name).collect();
        assert_eq!(names.len(), parameters.len());
        assert!(parameters.iter().all(|p| p.decayed == (p.shape.len() == 2)));
    }
}
