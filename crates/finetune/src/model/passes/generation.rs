//! The passes that generate text: prefill over the tokens of a prompt, and decode over one token of
//! one or several sequences.
//!
//! Both run the layers over a KV cache and end by sampling the next token. The token stays on the
//! device for the next pass.

use retrograph_kernels::ops::{MarkSeenTokens, Sample, SamplingParameters, sample_chunks};
use retrograph_runtime::{Pass, Slice};

use crate::config::InferenceConfig;
use crate::error::Result;
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::layers::{
    CacheConfig, KvCache, LastToken, Layer, LayerCache, Model, PassConfig, Residual, RopeTables,
};
use crate::model::sequences::Sequences;
use crate::parameters::normed_weight;
use crate::spec::ModelSpec;

/// Words of a sequence in [`GenerationPass::sampled`]: the token, and 1 if the logits were not
/// finite.
pub const SAMPLED: usize = 2;

/// The source of a pass's tokens.
#[derive(Clone, Copy, Debug)]
pub enum TokenSource {
    /// A prompt.
    Prompt {
        /// Control: one token for each row of the pass.
        tokens: Slice<u32>,
        /// Control: the number of rows that are tokens. The other rows are padding without effect.
        count: Slice<u32>,
        /// Control: `count - 1`, the row that has logits.
        last: Slice<u32>,
    },
    /// The token that the previous pass sampled.
    Sampled,
}

/// A pass that generates text, and the buffers that a caller binds and sets.
#[derive(Debug)]
pub struct GenerationPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// The source of the tokens.
    pub source: TokenSource,
    /// Control: the position of each token, as many as the pass has rows.
    pub positions: Slice<u32>,
    /// Control: the sampling parameters of the next token of each sequence, encoded by
    /// [`SamplingParameters::words`].
    pub sampling: Slice<u32>,
    /// External: cosines of the rotary positions, `[capacity, head_dim / 2]`.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, updated: keys and values of each layer, `[batch, capacity, kv_heads, head_dim]`.
    pub caches: Vec<LayerCache>,
    /// External: the norms and scales of DoRA layers, if there are any. Prefill writes them and
    /// decode reads them.
    pub dora_norms: Option<Slice<f32>>,
    /// External, updated: `[batch, vocab]`, 1 for tokens of the sequence so far.
    pub seen: Slice<u32>,
    /// External, updated: `[SAMPLED, batch]`, the tokens of all sequences, then their statuses.
    pub sampled: Slice<u32>,
    /// External, written: `[batch, vocab]` logits of the next token.
    pub logits: Slice<f32>,
}

impl GenerationPass {
    /// Describes prefill of at most `rows` tokens of a prompt. The pass can attend to the first
    /// `cache.length` positions of the KV cache of one sequence.
    ///
    /// # Errors
    /// If the sizes are not valid, or a kernel does not support them.
    pub fn prefill(config: &InferenceConfig, rows: usize, cache: CacheConfig) -> Result<Self> {
        let mut parts = Parts::new("prompt", config, rows, cache)?;
        parts.keep_dora_norms(false);
        let pass = &mut parts.builder.pass;
        let tokens = pass.control_array::<u32>("tokens", rows);
        let [count, last] = ["count", "last"].map(|name| pass.control::<u32>(name));
        let mut x: Residual = parts.embed(tokens, Some(count))?.into();
        let one_row = parts.last_layer_of_one_row(config);
        let Parts { builder, spec, model, cache, .. } = &mut parts;
        let next = model.head.weight().value;
        for (number, (layer, spec)) in model.layers.iter().zip(&spec.layers).enumerate() {
            let cache = cache.layer(number, spec);
            x = if number + 1 == model.layers.len() {
                let last = LastToken { index: last, one_row: &one_row, next };
                layer.prefill_last(builder, x, &cache, count, last)?
            } else {
                layer.prefill(builder, x, &cache, Some(count))?
            };
        }
        parts.sample(x, TokenSource::Prompt { tokens, count, last })
    }

    /// Describes decoding: one token of each sequence, which the previous pass sampled.
    ///
    /// # Errors
    /// As [`GenerationPass::prefill`].
    pub fn decode(config: &InferenceConfig, cache: CacheConfig) -> Result<Self> {
        let batch = cache.batch;
        let name = if batch == 1 { "next token" } else { "next tokens" };
        let mut parts = Parts::new(name, config, 1, cache)?;
        parts.keep_dora_norms(true);
        let mut x = parts.embed(parts.sampled.slice(0..batch), None)?.into();
        let Parts { builder, spec, model, cache, .. } = &mut parts;
        for (number, layer) in model.layers.iter().enumerate() {
            let next = model.layers.get(number + 1);
            let next = next.map_or(model.head.weight().value, Layer::first_weight);
            let cache = cache.layer(number, &spec.layers[number]);
            x = layer.decode(builder, x, &cache, next)?;
        }
        parts.sample(x, TokenSource::Sampled)
    }
}

/// The resolved model of a pass, and the buffers that prefill and decode share.
struct Parts {
    builder: Builder,
    spec: ModelSpec,
    model: Model,
    cache: KvCache,
    tables: RopeTables,
    dora_norms: Option<Slice<f32>>,
    sampling: Slice<u32>,
    seen: Slice<u32>,
    sampled: Slice<u32>,
    logits: Slice<f32>,
}

impl Parts {
    fn new(name: &str, config: &InferenceConfig, rows: usize, cache: CacheConfig) -> Result<Self> {
        config.validate(rows)?;
        let spec = ModelSpec::from(&config.model);
        let mut builder = Builder::new(name, config.parameters(), None);
        let CacheConfig { batch, capacity, .. } = cache;
        let cache = KvCache::declare(&mut builder, &spec, cache, rows)?;
        builder.sequences = Sequences::of_generation(cache.positions);
        let pass = &mut builder.pass;
        let sampling = pass.control_array::<u32>("sampling", batch * SamplingParameters::LEN);
        let seen = pass.external::<u32>("seen", batch * spec.vocab);
        let sampled = pass.external::<u32>("sampled", batch * SAMPLED);
        let logits = pass.external::<f32>("logits", batch * spec.vocab);
        let tables = RopeTables::declare(&mut builder, capacity, &config.model);
        let config = PassConfig::generation(config, batch, rows);
        let model = Model::new(&builder, &spec, &config, tables);
        let dora_norms = None;
        Ok(Self {
            builder,
            spec,
            model,
            cache,
            tables,
            dora_norms,
            sampling,
            seen,
            sampled,
            logits,
        })
    }

    /// Resolves the last layer for a single row.
    fn last_layer_of_one_row(&self, config: &InferenceConfig) -> Layer {
        let config = PassConfig::generation(config, 1, 1);
        let last = self.spec.layers.len() - 1;
        let (spec, before) = (&self.spec.layers[last], &self.model.layers[..last]);
        Layer::new(&self.builder, &config, self.tables, spec, before)
    }

    /// Declares the norms of DoRA layers, which are `computed` by an earlier pass, or by this pass.
    fn keep_dora_norms(&mut self, computed: bool) {
        let Builder { pass, parameters, dora_norms, .. } = &mut self.builder;
        let magnitudes = parameters.iter().filter(|it| normed_weight(&it.parameter.name).is_some());
        let magnitudes: Vec<_> = magnitudes.map(|it| it.value.floats()).collect();
        self.dora_norms = dora_norms.keep(pass, &magnitudes, computed);
    }

    /// Appends the embedding of `tokens`, which are tokens of a prompt or one of each sequence. The
    /// control `count` is the number of tokens.
    fn embed(&mut self, tokens: Slice<u32>, count: Option<Slice<u32>>) -> Result<Slice<f32>> {
        let x = self.model.embedding.forward(&mut self.builder, tokens)?;
        let (seen, vocab) = (self.seen, self.spec.vocab);
        self.builder.launch(MarkSeenTokens { tokens, seen, count, vocab }.launch())?;
        Ok(x)
    }

    /// Appends logits and sampling of the tokens after `x`, which ends the pass.
    fn sample(self, x: Residual, source: TokenSource) -> Result<GenerationPass> {
        let Self { mut builder, spec, model, cache, tables, dora_norms, .. } = self;
        let Self { sampling, seen, sampled, logits, .. } = self;
        model.head.next_tokens(&mut builder, x, logits)?;
        builder.scope("sample");
        let (vocab, batch) = (spec.vocab, logits.len() / spec.vocab);
        let chunks = batch * sample_chunks(vocab);
        let sample = Sample {
            logits,
            seen,
            sampling,
            adjusted: builder.transient("adjusted", logits.len()),
            maxima: builder.transient("maxima", chunks),
            selection: builder.pass.transient::<u32>("sample/selection", batch * 2),
            scores: builder.transient("scores", chunks),
            tokens: builder.pass.transient::<u32>("sample/tokens", chunks),
            sampled,
            vocab,
        };
        for launch in sample.launches()? {
            builder.launch(Ok(launch))?;
        }
        let Builder { pass, parameters, .. } = builder;
        let RopeTables { cos, sin, .. } = tables;
        Ok(GenerationPass {
            pass,
            parameters,
            source,
            positions: cache.positions,
            sampling,
            cos,
            sin,
            caches: cache.layers,
            dora_norms,
            seen,
            sampled,
            logits,
        })
    }
}

#[cfg(test)]
mod tests {
    use retrograph_kernels::{DType, ops};

    use super::super::count;
    use super::*;
    use crate::config::{GatedActivation, LoraConfig, Mode, ModelConfig, Precision, Preset};

    fn config(mode: Mode) -> InferenceConfig {
        InferenceConfig { mode, ..InferenceConfig::frozen(Preset::Tiny.model(), Precision::F32) }
    }

    fn cache(length: usize) -> CacheConfig {
        CacheConfig { batch: 1, length, capacity: 1024, dtype: DType::F32 }
    }

    #[test]
    fn decoding_computes_the_projections_of_training_as_vectors() {
        let next = GenerationPass::decode(&config(Mode::Full), cache(256)).unwrap();
        // In each of two layers: q, k and v together, the output projection, gate and up
        // together, down. Then the logits.
        assert_eq!(count(&next.pass, &[&ops::GEMV]), 2 * 4 + 1);
        // Products compute the norms and add the residuals. RoPE, append and attention are one
        // launch.
        let fused = [&ops::RMS_NORM, &ops::SWIGLU, &ops::ROPE, &ops::ADD, &ops::KV_CACHE_APPEND];
        assert_eq!(count(&next.pass, &fused), 0);
        assert_eq!(count(&next.pass, &[&ops::FPROP]), 0);
        assert_eq!(count(&next.pass, &[&ops::DECODE_ATTENTION]), 2);
        assert_eq!(count(&next.pass, &[&ops::DECODE_ATTENTION_COMBINE]), 2);
        let lora = config(Mode::Lora(LoraConfig::new(8, 32.0)));
        let lora = GenerationPass::decode(&lora, cache(256)).unwrap();
        // Updates of queries and values begin with the projections, and end with the attention.
        assert_eq!(count(&lora.pass, &[&ops::GEMV]), count(&next.pass, &[&ops::GEMV]));
        assert_eq!(lora.pass.operations().len(), next.pass.operations().len());
    }

    #[test]
    fn several_texts_are_decoded_and_sampled_by_launches_of_all() {
        let pass = |batch| {
            let cache = CacheConfig { batch, ..cache(256) };
            GenerationPass::decode(&config(Mode::Full), cache).unwrap().pass
        };
        let (two, most) = (pass(2), pass(64));
        for pass in [&two, &most] {
            assert_eq!(count(pass, &[&ops::FPROP]), 2 * 7 + 1);
            assert_eq!(count(pass, &[&ops::DECODE_ATTENTION]), 2);
            let once = [&ops::EMBEDDING, &ops::MARK_SEEN_TOKENS, &ops::SAMPLE_DRAW];
            assert_eq!(once.map(|kernel| count(pass, &[kernel])), [1; 3]);
        }
        assert_eq!(two.operations().len(), most.operations().len());
        assert_eq!(two.depth(), most.depth());
    }

    #[test]
    fn layers_of_several_texts_in_bf16_share_launches() {
        let pass = |mode| {
            let model = Preset::Tiny.model();
            let config =
                InferenceConfig { mode, ..InferenceConfig::frozen(model, Precision::BF16) };
            let cache = CacheConfig { batch: 3, dtype: DType::Bf16, ..cache(256) };
            GenerationPass::decode(&config, cache).unwrap().pass
        };
        let full = pass(Mode::Full);
        assert_eq!(count(&full, &[&ops::SKINNY]), 2 * 4 + 1);
        let fused = [&ops::SWIGLU, &ops::ROPE, &ops::ADD, &ops::KV_CACHE_APPEND, &ops::CAST];
        assert_eq!((count(&full, &fused), count(&full, &[&ops::RMS_NORM])), (0, 2 * 2 + 1));
        // The products of q, k and v are separate beside updates of q and v.
        let lora = pass(Mode::Lora(LoraConfig::new(8, 32.0)));
        assert_eq!(count(&lora, &[&ops::SKINNY]), 2 * (3 + 3) + 1);
    }

    #[test]
    fn several_texts_of_a_geglu_model_are_decoded_in_bf16() {
        let activation = GatedActivation::GeluTanh;
        let model = ModelConfig { activation, ..Preset::Tiny.model() };
        for (hidden, intermediate) in [(64, 128), (2048, 8192)] {
            let model = ModelConfig { hidden, intermediate, ..model };
            let config = InferenceConfig::frozen(model, Precision::BF16);
            let cache = CacheConfig { batch: 8, dtype: DType::Bf16, ..cache(256) };
            let pass = GenerationPass::decode(&config, cache).unwrap().pass;
            // In each of two layers: q, k and v, the output projection, gate and up, down. Then the
            // logits.
            assert_eq!(count(&pass, &[&ops::SKINNY]), 2 * 4 + 1);
            assert_eq!(count(&pass, &[&ops::GEGLU]), 2);
        }
    }

    #[test]
    fn prefill_computes_one_row_from_the_last_output_projection_on() {
        let prompt = GenerationPass::prefill(&config(Mode::Full), 16, cache(256)).unwrap();
        let count = |kernel| count(&prompt.pass, &[kernel]);
        // All products of the first layer, and q, k and v of the second one. Then the output
        // projection, gate and up together, down, and the logits.
        assert_eq!((count(&ops::FPROP), count(&ops::GEMV)), (7 + 3, 4));
        assert_eq!(prompt.logits.len(), 256);
        assert_eq!(count(&ops::KV_CACHE_APPEND), 2);
        assert_eq!(count(&ops::PREFILL_ATTENTION_F32), 2);
    }

    #[test]
    fn prefill_in_bf16_fuses_projections_with_rope_and_swiglu() {
        let model = Preset::Qwen25OneAndHalf.model();
        let config = InferenceConfig::frozen(model, Precision::BF16);
        let cache = CacheConfig { dtype: DType::Bf16, ..cache(1024) };
        let prompt = GenerationPass::prefill(&config, 1024, cache).unwrap();
        let count = |kernels: &[_]| count(&prompt.pass, kernels);
        assert_eq!(count(&[&ops::KV_CACHE_APPEND]), model.layers, "keys and values are bf16");
        assert_eq!(count(&[&ops::PREFILL_ATTENTION_BF16]), model.layers);
        assert_eq!(count(&[&ops::ROPE, &ops::SWIGLU, &ops::CAST]), 0);
    }

    #[test]
    fn only_prefill_in_f32_stores_capped_scores() {
        let model = ModelConfig { attention_softcap: Some(50.0), ..Preset::Tiny.model() };
        let in_bf16 = InferenceConfig::frozen(model, Precision::BF16);
        let cache_bf16 = CacheConfig { dtype: DType::Bf16, ..cache(256) };
        let prompt = GenerationPass::prefill(&in_bf16, 16, cache_bf16).unwrap();
        assert_eq!(count(&prompt.pass, &[&ops::PREFILL_ATTENTION_BF16]), 2);
        let config = InferenceConfig::frozen(model, Precision::F32);
        let prompt = GenerationPass::prefill(&config, 16, cache(256)).unwrap();
        assert_eq!(count(&prompt.pass, &[&ops::PREFILL_ATTENTION_F32]), 0);
        assert_eq!(count(&prompt.pass, &[&ops::SCORES]), 2);
        let next = GenerationPass::decode(&config, cache(256)).unwrap();
        assert_eq!(count(&next.pass, &[&ops::DECODE_ATTENTION]), 2);
    }

    #[test]
    fn a_long_prompt_in_tf32x3_is_not_split_into_f16_terms() {
        let model = Preset::Qwen25Half.model();
        let splits = |precision| {
            let config = InferenceConfig::frozen(model, precision);
            let prompt = GenerationPass::prefill(&config, 256, cache(256)).unwrap();
            count(&prompt.pass, &[&ops::SPLIT, &ops::FPROP_SPLIT])
        };
        assert!(splits(Precision::F32) > 0);
        assert_eq!(splits(Precision::TF32X3), 0);
    }

    #[test]
    fn passes_of_all_lengths_share_the_buffers_of_the_cache() {
        let sizes = |length| {
            let next = GenerationPass::decode(&config(Mode::Full), cache(length)).unwrap();
            let stored = next.caches.iter().flat_map(|pair| pair.views());
            stored.map(|cache| cache.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(256), sizes(1024));
    }
}
