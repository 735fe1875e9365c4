//! GGUF files of models and adapters, as llama.cpp reads them.
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

use super::config::Architecture;
use super::{ExportError, ModelWeights, OnProgress, WeightType, Written};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::Result;
use crate::parameters::Parameter;
use file::{Head, write};
pub(super) use output::FORMAT;

/// Frequency factors of RoPE.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// A tensor of the file.
enum Source<'a> {
    Weights(&'a Parameter),
    /// Elements that are computed from the configuration.
    Values(Vec<f32>),
}

/// Writes `weights` with the tokenizer to the file of `output`, which appears when it is complete.
///
/// # Errors
/// An [`ExportError`], for example about a tokenizer that llama.cpp does not have; the error of
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
    let tensors = weights.tensors().to_vec();
    let mut sources: Vec<_> = tensors.iter().map(Source::Weights).collect();
    sources.extend(factors.map(Source::Values));
    let dtype = output.dtype();
    let heads: Vec<Head> = sources.iter().map(|source| head(source, dtype)).collect();
    let encode = &mut |index: usize| match &sources[index] {
        Source::Weights(tensor) => {
            let order = names::row_order(architecture, &model, &tensor.name);
            Ok(weights.read(tensor)?.encode(heads[index].dtype, &*order)?)
        }
        Source::Values(values) => Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
    };
    write(output.path, (&metadata, &heads), encode, on)
}

fn head(source: &Source<'_>, dtype: WeightType) -> Head {
    match source {
        Source::Weights(tensor) => {
            let width = *tensor.shape.last().unwrap_or(&1);
            let matrix = tensor.shape.len() == 2;
            let dtype = if matrix { dtype.for_width(width) } else { WeightType::F32 };
            Head { name: names::of(&tensor.name), shape: tensor.shape.clone(), dtype }
        }
        Source::Values(values) => Head {
            name: ROPE_FACTORS.to_owned(),
            shape: vec![values.len()],
            dtype: WeightType::F32,
        },
    }
}

/// Returns the factors by which llama.cpp divides the frequencies of RoPE.
fn rope_factors(
    architecture: Architecture,
    model: &ModelConfig,
) -> Result<Option<Vec<f32>>, ExportError> {
    match model.rope_scaling {
        // Dynamic frequencies change only beyond the context that the metadata has.
        None | Some(RopeScaling::Linear { .. } | RopeScaling::Dynamic { .. }) => return Ok(None),
        Some(RopeScaling::LongRope(_)) => {
            return Err(ExportError::NotExpressible {
                format: FORMAT,
                what: "LongRoPE scaling".to_owned(),
                remedy: "use a Hugging Face directory",
            });
        }
        Some(RopeScaling::Yarn(_)) => {
            return Err(ExportError::NotExpressible {
                format: FORMAT,
                what: "YaRN RoPE scaling".to_owned(),
                remedy: "use a Hugging Face directory",
            });
        }
        Some(RopeScaling::Llama3 { .. }) => {}
    }
    if architecture != Architecture::Llama {
        return Err(ExportError::NotExpressible {
            format: FORMAT,
            what: format!("llama3 RoPE scaling of the architecture {}", architecture.name()),
            remedy: "use a Hugging Face directory",
        });
    }
    let plain = ModelConfig { rope_scaling: None, ..*model }.rope_frequencies(1);
    let factors = plain.into_iter().zip(model.rope_frequencies(1));
    Ok(Some(factors.map(|(plain, scaled)| (plain / scaled) as f32).collect()))
}
