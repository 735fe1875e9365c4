//! The passes that generate text: over the tokens of a prompt, and over one token after the other.
//!
//! Both are the layers of training over a cache of keys and values, and end in the choice of the
//! token that comes next. That token stays on the device, where the next pass reads it.

use retrograph_kernels::ops::{Embedding, MarkTokens, Sample, SamplingParameters, sample_chunks};
use retrograph_runtime::{Pass, Slice};

use super::attention::Rotary;
use super::builder::{Builder, ParameterBuffers};
use super::cached::{Cache, CacheForm, LayerCache};
use super::residual::Residual;
use super::{head, layer};
use crate::config::TrainingConfig;
use crate::error::Result;

/// Words of [`GenerationPass::sampled`]: the token, and 1 where the logits were not finite.
pub const SAMPLED: usize = 2;

/// Which tokens a pass takes in.
#[derive(Clone, Copy, Debug)]
pub enum Intake {
    /// Those of a prompt.
    Prompt {
        /// Control: as many tokens as the pass has rows.
        tokens: Slice<u32>,
        /// Control: how many of them count. The others have no influence.
        count: Slice<u32>,
        /// Control: one less than `count`, the row whose logits are wanted.
        last: Slice<u32>,
    },
    /// The one that the pass before has chosen.
    Sampled,
}

/// A pass that generates text, and the buffers through which it is bound and fed.
#[derive(Debug)]
pub struct GenerationPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Where the tokens come from.
    pub intake: Intake,
    /// Control: the position of the first token.
    pub position: Slice<u32>,
    /// Control: how the next token is chosen, as [`SamplingParameters::words`] writes it.
    pub sampling: Slice<u32>,
    /// External: cosines of the rotary positions, `[room, head_dim / 2]`.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, updated: keys and values of each layer, `[room, kv_heads, head_dim]`.
    pub caches: Vec<LayerCache>,
    /// External, updated: `[vocab]`, 1 for tokens that were taken in.
    pub seen: Slice<u32>,
    /// External, updated: [`SAMPLED`] words.
    pub sampled: Slice<u32>,
    /// External, written: `[vocab]` logits behind the last token.
    pub logits: Slice<f32>,
}

impl GenerationPass {
    /// Describes the pass over at most `rows` tokens of a prompt, of the model of `config`. It sees
    /// the first `cache.length` positions of the cache.
    ///
    /// # Errors
    /// When the sizes are not valid, or a kernel cannot handle them.
    pub fn prompt(config: &TrainingConfig, rows: usize, cache: CacheForm) -> Result<Self> {
        let config = TrainingConfig { batch: 1, seq: rows, ..*config };
        let (mut builder, mut cache) = begin("prompt", &config, cache)?;
        let tokens = builder.pass.control_array::<u32>("tokens", rows);
        let [count, last] = ["count", "last"].map(|name| builder.pass.control::<u32>(name));
        cache.count = Some(count);
        finish(builder, cache, Intake::Prompt { tokens, count, last })
    }

    /// Describes the pass over the token that was chosen last.
    ///
    /// # Errors
    /// As [`GenerationPass::prompt`].
    pub fn next(config: &TrainingConfig, cache: CacheForm) -> Result<Self> {
        let config = TrainingConfig { batch: 1, seq: 1, ..*config };
        let (builder, cache) = begin("next token", &config, cache)?;
        finish(builder, cache, Intake::Sampled)
    }
}

fn begin(name: &str, config: &TrainingConfig, form: CacheForm) -> Result<(Builder, Cache)> {
    config.validate()?;
    let mut builder = Builder::new(name, config, None);
    let cache = Cache::declare(&mut builder, form);
    Ok((builder, cache))
}

/// Appends everything from the tokens to the next one.
fn finish(mut builder: Builder, cache: Cache, intake: Intake) -> Result<GenerationPass> {
    let (position, caches, count) = (cache.position, cache.layers.clone(), cache.count);
    builder.cache = Some(cache);
    let vocab = builder.config.model.vocab;
    let sampling = builder.pass.control_array::<u32>("sampling", SamplingParameters::LEN);
    let seen = builder.pass.external::<u32>("seen", vocab);
    let sampled = builder.pass.external::<u32>("sampled", SAMPLED);
    let logits = builder.pass.external::<f32>("logits", vocab);
    let rotary = Rotary::declare(&mut builder);
    let tokens = match intake {
        Intake::Prompt { tokens, .. } => tokens,
        Intake::Sampled => sampled.slice(0..1),
    };
    let mut x = Residual::from(head::embed(&mut builder, tokens)?);
    builder.launch(MarkTokens { tokens, seen, count }.launch())?;
    for number in 0..builder.config.model.layers {
        x = layer::forward(&mut builder, number, x, rotary)?.0;
    }
    if let Intake::Prompt { last, .. } = intake {
        x = row(&mut builder, x, last)?.into();
    }
    head::logits_into(&mut builder, x, logits)?;
    sample(&mut builder, [logits], [seen, sampling, sampled])?;
    let Builder { pass, parameters, .. } = builder;
    let Rotary { cos, sin } = rotary;
    Ok(GenerationPass {
        pass,
        parameters,
        intake,
        position,
        sampling,
        cos,
        sin,
        caches,
        seen,
        sampled,
        logits,
    })
}

/// Appends taking one row of `x`, which is a table of rows for that.
fn row(builder: &mut Builder, x: Residual, index: Slice<u32>) -> Result<Slice<f32>> {
    builder.scope("last token");
    let x = x.settle(builder)?;
    let (hidden, rows) = (builder.config.model.hidden, builder.rows());
    let out = builder.transient("out", hidden);
    builder.launch(Embedding { tokens: index, table: x, out, hidden, vocab: rows }.launch())?;
    Ok(out)
}

/// Appends the choice of the next token.
fn sample(
    builder: &mut Builder,
    [logits]: [Slice<f32>; 1],
    [seen, sampling, sampled]: [Slice<u32>; 3],
) -> Result<()> {
    builder.scope("sample");
    let chunks = sample_chunks(logits.len());
    let sample = Sample {
        logits,
        seen,
        sampling,
        adjusted: builder.transient("adjusted", logits.len()),
        maxima: builder.transient("maxima", chunks),
        selection: builder.pass.transient::<u32>("sample/selection", 2),
        scores: builder.transient("scores", chunks),
        tokens: builder.pass.transient::<u32>("sample/tokens", chunks),
        sampled,
    };
    for launch in sample.launches()? {
        builder.launch(Ok(launch))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Dtype, LoraConfig, Mode, OptimizerConfig, Preset};

    fn config(mode: Mode) -> TrainingConfig {
        let optimizer = OptimizerConfig::new(1e-3, 1);
        let (model, precision) = (Preset::Tiny.model(), crate::config::Precision::F32);
        TrainingConfig { model, mode, precision, batch: 1, seq: 1, optimizer, seed: 0 }
    }

    fn form(length: usize) -> CacheForm {
        CacheForm { length, room: 1024, dtype: Dtype::F32 }
    }

    fn count(pass: &Pass, part: &str) -> usize {
        pass.operations().iter().filter(|operation| operation.name().contains(part)).count()
    }

    #[test]
    fn a_token_passes_through_the_projections_of_training_as_vectors() {
        let next = GenerationPass::next(&config(Mode::Full), form(256)).unwrap();
        // Projections of queries, keys and values, that of the output, gate and up, down, in each
        // of two layers, and the logits.
        assert_eq!(count(&next.pass, "gemv"), 2 * 4 + 1);
        // Norms are taken and residuals are added where products begin and end.
        assert_eq!((count(&next.pass, "norm"), count(&next.pass, "swiglu")), (0, 0));
        assert_eq!((count(&next.pass, "gemm"), count(&next.pass, "rope")), (0, 0));
        // What is turned, appended and asked for is one launch, and adding the runs another.
        assert_eq!(count(&next.pass, "cache"), 2 * 2);
        assert_eq!(count(&next.pass, "add"), 0);
        let lora = config(Mode::Lora(LoraConfig::new(8, 32.0)));
        let lora = GenerationPass::next(&lora, form(256)).unwrap();
        // Updates of queries and values begin with the projections, and end with the attention.
        assert_eq!(count(&lora.pass, "gemv"), count(&next.pass, "gemv"));
        assert_eq!(lora.pass.operations().len(), next.pass.operations().len());
    }

    #[test]
    fn a_prompt_needs_the_logits_of_one_row() {
        let prompt = GenerationPass::prompt(&config(Mode::Full), 16, form(256)).unwrap();
        assert_eq!((count(&prompt.pass, "gemm"), count(&prompt.pass, "gemv")), (2 * 7, 1));
        assert_eq!((prompt.logits.len(), count(&prompt.pass, "add")), (256, 1));
        assert_eq!(count(&prompt.pass, "kv_cache_append"), 2);
    }

    #[test]
    fn all_lengths_are_over_the_same_buffers() {
        let sizes = |length| {
            let next = GenerationPass::next(&config(Mode::Full), form(length)).unwrap();
            let stored = next.caches.iter().flat_map(|pair| pair.views());
            stored.map(|cache| cache.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(256), sizes(1024));
    }
}
