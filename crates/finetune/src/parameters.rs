//! The inventory of parameters: names as in Hugging Face models, shapes, and whether each is
//! trained.
//!
//! Matrices are `[outputs, inputs]`, row-major. A model whose token table is also the output
//! projection has no `lm_head.weight`.

mod chunk;
mod dtypes;
mod layout;
mod sharding;
mod storage;
mod stored;

pub use chunk::Chunk;
pub use layout::{Fused, Layout, PartialHeads};
pub(crate) use sharding::ALIGNED_ELEMENTS;
pub use sharding::Sharding;
pub use storage::Storage;

use crate::config::{LoraConfig, LoraModule, Mode, ModelConfig, Projection};
use crate::spec::{LayerSpec, ModelSpec, NormSpec};

/// The distribution of a parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// One value for all elements.
    Constant(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Uniform between minus and plus this bound.
    Uniform(f32),
    /// The row norms of the weight of the same layer.
    RowNorms {
        /// Elements of a row.
        width: usize,
        /// Standard deviation of the weight, if it is also initialized.
        deviation: f32,
    },
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, for example `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// The shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Whether it is trained.
    pub trainable: bool,
    /// Whether weight decay applies: to matrices and to the norms of DoRA, not to other norms and
    /// biases.
    pub decayed: bool,
    /// The initial values.
    pub init: Init,
    /// The dtype on the device.
    pub storage: Storage,
    /// The place in files.
    pub layout: Layout,
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

/// Returns the name of a parameter of a layer; `part` is for example `mlp.up_proj.weight`.
pub fn layer_name(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

/// The token table, also the output projection of a tied model.
pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// The weight of the norm before the output projection.
pub const FINAL_NORM: &str = "model.norm.weight";
/// The output projection of a model that is not tied.
pub const HEAD: &str = "lm_head.weight";
/// The weight of the norm before attention, within its layer.
pub(crate) const ATTENTION_NORM: &str = "input_layernorm.weight";
/// The weight of the norm before the MLP, within its layer, if no norm follows attention.
pub(crate) const MLP_NORM: &str = "post_attention_layernorm.weight";
/// The weight of the norm before the MLP, within its layer, if norms follow attention and the MLP.
pub(crate) const PRE_MLP_NORM: &str = "pre_feedforward_layernorm.weight";
/// The weight of the norm after attention, within its layer.
pub(crate) const POST_ATTENTION_NORM: &str = "post_attention_layernorm.weight";
/// The weight of the norm after the MLP, within its layer.
pub(crate) const POST_MLP_NORM: &str = "post_feedforward_layernorm.weight";
/// The weight of the norm of query heads, within its layer.
pub(crate) const Q_NORM: &str = "self_attn.q_norm.weight";
/// The weight of the norm of key heads, within its layer.
pub(crate) const K_NORM: &str = "self_attn.k_norm.weight";

/// The last part of the name of the norms that DoRA trains.
const MAGNITUDES: &str = ".lora_magnitude_vector";

/// Returns the name of the weight of which `name` are the trained norms, if they are.
pub(crate) fn normed_weight(name: &str) -> Option<String> {
    Some(format!("{}.weight", name.strip_suffix(MAGNITUDES)?))
}

/// Returns the name of the weight of the norm before the MLP, within its layer.
pub(crate) fn mlp_norm(spec: &LayerSpec) -> &'static str {
    if spec.post_norm.is_some() { PRE_MLP_NORM } else { MLP_NORM }
}

/// Standard deviation of every randomly initialized base weight: the square root of 2 / (5 · width)
/// from Nguyen and Salazar, "Transformers without Tears", which is about 0.02 at Qwen2's widths.
fn deviation(hidden: usize) -> f32 {
    (0.4 / hidden as f32).sqrt()
}

/// Returns every parameter of the model in `mode`, all in f32, in the order in which the forward
/// pass uses them.
pub fn inventory(model: &ModelConfig, mode: Mode) -> Vec<Parameter> {
    let spec = ModelSpec::from(model);
    let deviation = deviation(spec.hidden);
    let (full, lora) = (mode.is_full(), mode.lora());
    let mut list = List { full, lora, deviation, parameters: Vec::new() };
    let table = lora.map_or(full, |lora| lora.embeddings);
    list.matrix(EMBEDDING.to_owned(), [spec.vocab, spec.hidden], table);
    for (number, layer) in spec.layers.iter().enumerate() {
        list.layer(layer, number);
    }
    let trainable = list.full;
    list.norm(FINAL_NORM.to_owned(), spec.hidden, spec.final_norm, trainable);
    if !spec.tie_word_embeddings {
        let head = lora.map_or(full, |lora| lora.head);
        list.matrix(HEAD.to_owned(), [spec.vocab, spec.hidden], head);
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
    fn layer(&mut self, spec: &LayerSpec, number: usize) {
        let name = |part: &str| layer_name(number, part);
        let norms = self.lora.map_or(self.full, |lora| lora.norms);
        self.norm(name(ATTENTION_NORM), spec.hidden, spec.attention_norm, norms);
        for &projection in Projection::ALL {
            if let (Projection::O, Some(norm)) = (projection, spec.attention.qk_norm) {
                for head in [Q_NORM, K_NORM] {
                    self.norm(name(head), spec.attention.head_dim, norm, self.full);
                    self.place(Layout { offset: norm.offset, ..Layout::of_heads(spec) });
                }
            }
            if projection == Projection::Gate {
                if let Some(norm) = spec.post_norm {
                    self.norm(name(POST_ATTENTION_NORM), spec.hidden, norm, norms);
                }
                self.norm(name(mlp_norm(spec)), spec.hidden, spec.mlp_norm, norms);
            }
            let prefix = name(&projection.path());
            self.projection(&prefix, spec, number, projection);
        }
        if let Some(norm) = spec.post_norm {
            self.norm(name(POST_MLP_NORM), spec.hidden, norm, norms);
        }
    }

    /// Adds the weight of a projection, its bias, its LoRA matrices and its magnitudes, if
    /// it has them.
    fn projection(&mut self, prefix: &str, spec: &LayerSpec, layer: usize, projection: Projection) {
        let [inputs, outputs] = spec.projection(projection);
        let full = |kind: &str| format!("{prefix}.{kind}");
        let layout = Layout::of(spec, projection);
        self.matrix(full("weight"), [outputs, inputs], self.full);
        self.place(layout);
        if spec.has_bias(projection) {
            self.bias(full("bias"), outputs);
            self.place(layout);
        }
        let module = LoraModule { layer, projection, fused: spec.fused };
        if let Some(LoraConfig { rank, dora, .. }) = self.lora.and_then(|lora| lora.of(module)) {
            self.lora_a(full("lora_A.weight"), [rank, inputs]);
            self.place(layout.of_lora_a());
            self.lora_b(full("lora_B.weight"), [outputs, rank]);
            self.place(layout);
            if dora {
                self.magnitudes(format!("{prefix}{MAGNITUDES}"), [outputs, inputs]);
                self.place(layout);
            }
        }
    }

    /// Sets the layout of the last parameter.
    fn place(&mut self, layout: Layout) {
        if let Some(last) = self.parameters.last_mut() {
            last.layout = layout;
        }
    }

    fn matrix(&mut self, name: String, shape: [usize; 2], trainable: bool) {
        let init = Init::Normal(self.deviation);
        self.push(name, &shape, trainable, true, init);
    }

    fn bias(&mut self, name: String, len: usize) {
        self.push(name, &[len], self.full, false, Init::Constant(0.0));
    }

    fn norm(&mut self, name: String, len: usize, spec: NormSpec, trainable: bool) {
        self.push(name, &[len], trainable, false, Init::Constant(1.0));
        self.place(Layout { offset: spec.offset, ..Layout::default() });
    }

    /// `A` starts with the usual initialization of a linear layer.
    fn lora_a(&mut self, name: String, shape: [usize; 2]) {
        let bound = 1.0 / (shape[1] as f32).sqrt();
        self.push(name, &shape, true, true, Init::Uniform(bound));
    }

    /// `B` starts at zero, so training starts from the base model.
    fn lora_b(&mut self, name: String, shape: [usize; 2]) {
        self.push(name, &shape, true, true, Init::Constant(0.0));
    }

    /// Magnitudes start as the row norms of the weight, so training starts from the base model.
    /// Weight decay applies to them, as in `transformers`.
    fn magnitudes(&mut self, name: String, [outputs, inputs]: [usize; 2]) {
        let init = Init::RowNorms { width: inputs, deviation: self.deviation };
        self.push(name, &[outputs], true, true, init);
    }

    fn push(&mut self, name: String, shape: &[usize], trainable: bool, decayed: bool, init: Init) {
        let (shape, storage) = (shape.to_vec(), Storage::F32);
        let layout = Layout::default();
        self.parameters.push(Parameter { name, shape, trainable, decayed, init, storage, layout });
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
