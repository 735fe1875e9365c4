//! The metadata of a model: architecture and dimensions.

use super::file::{Metadata, Value};
use super::output::GgufOutput;
use crate::config::{ModelConfig, RopeScaling};
use crate::export::WeightType;
use crate::export::architecture::Architecture;
use crate::export::config::POSITIONS;
use crate::hub::ModelDirectory;

/// The version of the layout of quantized blocks.
const QUANTIZATION_VERSION: u32 = 2;

/// Returns the general metadata of a file of `kind`, model or adapter.
pub(super) fn general(kind: &str, architecture: Architecture, output: GgufOutput<'_>) -> Metadata {
    let text = |text: &str| Value::Text(text.to_owned());
    let file_type = match output.dtype() {
        WeightType::F32 => 0,
        WeightType::F16 => 1,
        WeightType::Q8_0 => 7,
        WeightType::Bf16 => 32,
    };
    let mut metadata = Metadata::default();
    metadata.add("general.architecture", text(architecture.gguf_name()));
    metadata.add("general.type", text(kind));
    metadata.add("general.name", text(&output.name()));
    metadata.add("general.file_type", Value::U32(file_type));
    metadata.add("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
    metadata
}

/// Returns the metadata of a model: general keys and dimensions.
pub(super) fn of_model(
    architecture: Architecture,
    model: &ModelConfig,
    output: GgufOutput<'_>,
) -> Metadata {
    let mut metadata = general("model", architecture, output);
    let positions =
        output.base.and_then(ModelDirectory::max_position_embeddings).unwrap_or(POSITIONS);
    let positions = match model.rope_scaling {
        Some(RopeScaling::Dynamic { original_max_position_embeddings: original, .. }) => {
            positions.min(original as usize)
        }
        _ => positions,
    };
    let gemma = matches!(architecture, Architecture::Gemma2 | Architecture::Gemma3);
    // llama.cpp has no windows in other architectures; contexts up to the window size are equal.
    let window = model.sliding_window.filter(|_| !gemma);
    let window = window.and_then(|window| usize::try_from(window.size).ok());
    let positions = window.map_or(positions, |window| positions.min(window));
    let sizes = [
        ("vocab_size", model.vocab),
        ("context_length", positions),
        ("embedding_length", model.hidden),
        ("block_count", model.layers),
        ("feed_forward_length", model.intermediate),
        ("attention.head_count", model.heads),
        ("attention.head_count_kv", model.kv_heads),
        ("attention.key_length", model.head_dim()),
        ("attention.value_length", model.head_dim()),
        ("rope.dimension_count", model.rotary_dim()),
    ];
    let key = |name: &str| format!("{}.{name}", architecture.gguf_name());
    for (name, size) in sizes {
        metadata.add(key(name), Value::U32(u32::try_from(size).unwrap_or(u32::MAX)));
    }
    let eps = Value::F32(model.rms_norm_eps);
    metadata.add(key("attention.layer_norm_rms_epsilon"), eps);
    metadata.add(key("rope.freq_base"), Value::F32(model.rope_theta as f32));
    if let Some(RopeScaling::Linear { factor }) = model.rope_scaling {
        metadata.add(key("rope.scaling.type"), Value::Text("linear".to_owned()));
        metadata.add(key("rope.scaling.factor"), Value::F32(factor as f32));
    }
    if let Some(RopeScaling::LongRope(long)) = model.rope_scaling {
        let original = Value::U32(long.original_max_position_embeddings as u32);
        metadata.add(key("rope.scaling.original_context_length"), original);
        metadata.add(key("rope.scaling.attn_factor"), Value::F32(long.attention_factor as f32));
    }
    if gemma {
        add_gemma(&mut metadata, model, &key, positions);
    }
    metadata
}

/// Adds windows and caps. llama.cpp assumes a window for Gemma 2, so a Gemma 2 without one gets the
/// whole context as its window.
fn add_gemma(
    metadata: &mut Metadata,
    model: &ModelConfig,
    key: &dyn Fn(&str) -> String,
    positions: usize,
) {
    let number = |number| Value::U32(u32::try_from(number).unwrap_or(u32::MAX));
    if let Some(window) = model.sliding_window {
        metadata.add(key("attention.sliding_window"), Value::U32(window.size));
        // With interval 0, all layers have windows.
        let interval = number(window.full_interval.unwrap_or(0));
        metadata.add(key("attention.sliding_window_pattern"), interval);
        let local = model.local_rope_theta.unwrap_or(model.rope_theta);
        metadata.add(key("rope.freq_base_swa"), Value::F32(local as f32));
    } else if !model.qk_norm {
        metadata.add(key("attention.sliding_window"), number(positions));
    }
    let caps = [
        ("attn_logit_softcapping", model.attention_softcap),
        ("final_logit_softcapping", model.logit_softcap),
    ];
    for (name, cap) in caps {
        if let Some(cap) = cap {
            metadata.add(key(name), Value::F32(cap));
        }
    }
}
