//! The inventory of parameters: names as Hugging Face's Qwen2, Qwen3 and Llama have them, shapes,
//! and what is trained.
//!
//! Matrices are `[outputs, inputs]`, row-major. There is no `lm_head.weight` where the token table
//! is also the output projection.

use crate::config::{Mode, ModelConfig};

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

    /// Bytes of the elements as f32.
    pub fn bytes(&self) -> usize {
        self.len() * size_of::<f32>()
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

/// Every parameter of the model in `mode`, in the order in which the forward pass meets them.
pub fn inventory(model: &ModelConfig, mode: Mode) -> Vec<Parameter> {
    let deviation = deviation(model.hidden);
    let mut list = List { full: mode.is_full(), deviation, parameters: Vec::new() };
    list.matrix(EMBEDDING.to_owned(), [model.vocab, model.hidden]);
    for layer in 0..model.layers {
        list.layer(model, mode, layer);
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
    deviation: f32,
    parameters: Vec<Parameter>,
}

impl List {
    fn layer(&mut self, model: &ModelConfig, mode: Mode, layer: usize) {
        let name = |part: &str| layer_name(layer, part);
        let (hidden, inner, q_width) = (model.hidden, model.intermediate, model.q_width());
        self.norm(name("input_layernorm.weight"), hidden, true);
        let widths =
            [("q_proj", q_width), ("k_proj", model.kv_width()), ("v_proj", model.kv_width())];
        for (projection, width) in widths {
            let full = |kind: &str| name(&format!("self_attn.{projection}.{kind}"));
            self.matrix(full("weight"), [width, hidden]);
            if model.qkv_bias {
                self.bias(full("bias"), width);
            }
            if let (Mode::Lora(lora), true) = (mode, projection != "k_proj") {
                self.lora(full("lora_A.weight"), full("lora_B.weight"), [width, lora.rank, hidden]);
            }
        }
        for head in if model.qk_norm { &["q_norm", "k_norm"][..] } else { &[] } {
            let trainable = self.full;
            self.norm(name(&format!("self_attn.{head}.weight")), model.head_dim(), trainable);
        }
        self.matrix(name("self_attn.o_proj.weight"), [hidden, q_width]);
        self.norm(name("post_attention_layernorm.weight"), hidden, true);
        self.matrix(name("mlp.gate_proj.weight"), [inner, hidden]);
        self.matrix(name("mlp.up_proj.weight"), [inner, hidden]);
        self.matrix(name("mlp.down_proj.weight"), [hidden, inner]);
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
        self.parameters.push(Parameter { name, shape: shape.to_vec(), trainable, decayed, init });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Preset};

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
        let mode = Mode::Lora(LoraConfig { rank: 8, alpha: 32.0 });
        let parameters = inventory(&Preset::Tiny.model(), mode);
        for parameter in &parameters {
            let name = &parameter.name;
            let expected = name.contains("lora_") || name.ends_with("layernorm.weight");
            assert_eq!(parameter.trainable, expected, "{name}");
        }
        let per_layer = 8 * (64 + 64) + 8 * (64 + 32) + 2 * 64;
        assert_eq!(count(&parameters, |p| p.trainable), 2 * per_layer);
    }

    #[test]
    fn names_are_unique_and_only_matrices_decay() {
        let parameters = inventory(&Preset::Tiny.model(), Mode::Full);
        let names: std::collections::HashSet<_> = parameters.iter().map(|p| &p.name).collect();
        assert_eq!(names.len(), parameters.len());
        assert!(parameters.iter().all(|p| p.decayed == (p.shape.len() == 2)));
    }
}
