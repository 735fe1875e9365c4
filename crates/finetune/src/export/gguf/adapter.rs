//! A LoRA adapter as a GGUF file.

use super::file::{Head, Value, write};
use super::output::{FORMAT, GgufOutput};
use super::{metadata, names};
use crate::config::{LoraPatterns, ModelConfig};
use crate::error::Result;
use crate::export::architecture::Architecture;
use crate::export::{ExportError, ModelWeights, OnProgress, WeightType, Written};
use crate::parameters::Parameter;

/// Writes the LoRA matrices of `weights` to the file of `output`, as f32 unless it sets a type.
/// llama.cpp applies the file to a model with the same base weights.
///
/// # Errors
/// [`ExportError::NotExpressible`] without LoRA, with DoRA, or with other trained weights,
/// [`ExportError::Type`] for Q8_0, the error of the weights, or if the file cannot be written.
/// Nothing is left then.
pub fn write_gguf_adapter(
    weights: &mut ModelWeights<'_>,
    output: GgufOutput<'_>,
    on: OnProgress<'_>,
) -> Result<Written> {
    output.require_free()?;
    let dtype = output.dtype.unwrap_or(WeightType::F32);
    if dtype == WeightType::Q8_0 {
        let (format, supported) = ("an adapter", "f32, bf16 or f16");
        return Err(ExportError::Type { format, dtype: dtype.name(), supported }.into());
    }
    let refuse = |what: &str, remedy| ExportError::NotExpressible {
        format: FORMAT,
        what: what.to_owned(),
        remedy,
    };
    let lora = weights.lora();
    let lora = lora.ok_or_else(|| refuse("an adapter of all weights", "export the model"))?;
    if lora.trains_base() {
        let what = "an adapter with trained norms, embeddings or output projection";
        return Err(refuse(what, "export the merged model").into());
    }
    if lora.patterns != LoraPatterns::NONE {
        let what = "an adapter with several ranks or alphas";
        return Err(refuse(what, "export the merged model").into());
    }
    if lora.dora {
        let what = "an adapter with DoRA";
        return Err(refuse(what, "export the merged model").into());
    }
    let model = *weights.config();
    let architecture = Architecture::of_gguf(&model)?;
    if model.fused {
        let what = "an adapter of fused projections";
        return Err(refuse(what, "export the merged model").into());
    }
    let output = GgufOutput { dtype: Some(dtype), ..output };
    let mut metadata = metadata::general("adapter", architecture, output);
    metadata.add("adapter.type", Value::Text("lora".to_owned()));
    // llama.cpp divides by the rank; rsLoRA divides by its root.
    let alpha = lora.exact_scale() * lora.rank as f64;
    metadata.add("adapter.lora.alpha", Value::F32(alpha as f32));
    let updates = weights.updates().to_vec();
    let head = |tensor: &Parameter| Head {
        name: name(&model, &tensor.name),
        shape: tensor.shape.clone(),
        dtype,
    };
    let heads: Vec<Head> = updates.iter().map(head).collect();
    let encode = &mut |index: usize| {
        let conversion = names::conversion(architecture, &model, &updates[index].name);
        let tensor = weights.read(&updates[index])?.converted(&conversion);
        Ok(tensor.encode(dtype, &*conversion.order)?)
    };
    write(output.path, &metadata, &heads, encode, on)
}

/// Returns the name of a LoRA matrix: `blk.0.attn_q.weight.lora_a`.
fn name(model: &ModelConfig, name: &str) -> String {
    let end = if name.ends_with(".lora_A.weight") { ".lora_A.weight" } else { ".lora_B.weight" };
    let base = format!("{}.weight", name.trim_end_matches(end));
    let part = if end == ".lora_A.weight" { "lora_a" } else { "lora_b" };
    format!("{}.{part}", names::of(model, &base))
}
