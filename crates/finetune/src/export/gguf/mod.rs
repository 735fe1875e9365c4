//! GGUF files of models and adapters, for llama.cpp.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, version 3. Matrices have
//! the type of the output. Norms and biases are f32, because llama.cpp supports no other type.

mod adapter;
mod file;
mod metadata;
mod names;
mod output;
mod pre_tokenizer;
mod vocabulary;

pub use adapter::write_gguf_adapter;
pub use output::GgufOutput;

use super::architecture::Architecture;
use super::weights::StoredTensor;
use super::{ExportError, ModelWeights, OnProgress, WeightType, Written};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::Result;
use file::{Head, write};
pub(super) use output::FORMAT;

/// A tensor of the file.
enum Source {
    Weights(StoredTensor),
    /// Elements that are computed from the configuration.
    Values(Factors),
}

/// The name of a tensor, and the factors by which llama.cpp divides RoPE frequencies.
type Factors = (&'static str, Vec<f32>);

/// Writes `weights` with the tokenizer to the file of `output`, which appears when it is complete.
///
/// # Errors
/// An [`ExportError`], for example about a tokenizer that llama.cpp does not support; the error of
/// the weights; or if the file cannot be written. Nothing is left then.
pub fn write_gguf(
    weights: &mut ModelWeights<'_>,
    output: GgufOutput<'_>,
    on: OnProgress<'_>,
) -> Result<Written> {
    output.require_free()?;
    let model = *weights.config();
    let architecture = Architecture::of_gguf(&model)?;
    let factors = rope_factors(architecture, &model)?;
    let mut metadata = metadata::of_model(architecture, &model, output);
    vocabulary::add(&mut metadata, output.base, model.vocab)?;
    let mut sources: Vec<_> = weights.stored().into_iter().map(Source::Weights).collect();
    sources.extend(factors.into_iter().map(Source::Values));
    let dtype = output.dtype();
    let heads: Vec<Head> = sources.iter().map(|source| head(&model, source, dtype)).collect();
    let encode = &mut |index: usize| match &sources[index] {
        Source::Weights(tensor) => {
            let conversion = names::conversion(architecture, &model, &tensor.name);
            tensor.encode_in(&conversion, weights, heads[index].dtype)
        }
        Source::Values((_, values)) => {
            Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }
    };
    write(output.path, &metadata, &heads, encode, on)
}

fn head(model: &ModelConfig, source: &Source, dtype: WeightType) -> Head {
    match source {
        Source::Weights(tensor) => {
            let width = *tensor.shape.last().unwrap_or(&1);
            let matrix = tensor.shape.len() == 2;
            let dtype = if matrix { dtype.for_width(width) } else { WeightType::F32 };
            Head { name: names::of(model, &tensor.name), shape: tensor.shape.clone(), dtype }
        }
        Source::Values((name, values)) => {
            let (name, shape) = ((*name).to_owned(), vec![values.len()]);
            Head { name, shape, dtype: WeightType::F32 }
        }
    }
}

/// Returns the factors of the frequencies of RoPE.
fn rope_factors(
    architecture: Architecture,
    model: &ModelConfig,
) -> Result<Vec<Factors>, ExportError> {
    let name = match (model.rope_scaling, architecture) {
        // Dynamic frequencies change only beyond the context length in the metadata.
        (None | Some(RopeScaling::Linear { .. } | RopeScaling::Dynamic { .. }), _) => {
            return Ok(Vec::new());
        }
        (Some(RopeScaling::LongRope(long)), Architecture::Phi3) => {
            let names = ["rope_factors_short.weight", "rope_factors_long.weight"];
            let factors = [long.short_factor, long.long_factor].map(Vec::from);
            return Ok(names.into_iter().zip(factors).collect());
        }
        (Some(RopeScaling::Llama3 { .. }), Architecture::Llama) => {
            let plain = ModelConfig { rope_scaling: None, ..*model }.rope_frequencies(1);
            let factors = plain.into_iter().zip(model.rope_frequencies(1));
            let factors = factors.map(|(plain, scaled)| (plain / scaled) as f32).collect();
            return Ok(vec![("rope_freqs.weight", factors)]);
        }
        (Some(RopeScaling::LongRope(_)), _) => "LongRoPE",
        (Some(RopeScaling::Yarn(_)), _) => "YaRN RoPE",
        (Some(RopeScaling::Llama3 { .. }), _) => "llama3 RoPE",
    };
    let what = format!("{name} scaling of the architecture {}", architecture.gguf_name());
    Err(ExportError::NotExpressible {
        format: FORMAT,
        what,
        remedy: "use a Hugging Face directory",
    })
}
