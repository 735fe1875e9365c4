//! Names of tensors in GGUF, and the order of their rows.

use crate::config::{ModelConfig, Projection};
use crate::export::architecture::Architecture;
use crate::export::weights::Conversion;
use crate::parameters::{
    ATTENTION_NORM, EMBEDDING, FINAL_NORM, HEAD, K_NORM, MLP_NORM, POST_ATTENTION_NORM,
    POST_MLP_NORM, PRE_MLP_NORM, Q_NORM,
};

/// Returns the name of the tensor that Hugging Face models call `name`.
pub(super) fn of(model: &ModelConfig, name: &str) -> String {
    match name {
        EMBEDDING => "token_embd.weight".to_owned(),
        FINAL_NORM => "output_norm.weight".to_owned(),
        HEAD => "output.weight".to_owned(),
        _ => match layer(name) {
            Some((layer, part)) => format!("blk.{layer}.{}", within_layer(model, part)),
            None => name.to_owned(),
        },
    }
}

/// Divides a name into the number of the layer and the part.
fn layer(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("model.layers.")?.split_once('.')
}

fn within_layer(model: &ModelConfig, part: &str) -> String {
    match part {
        // In a model with norms after blocks, the norm before the MLP has another name.
        POST_ATTENTION_NORM if model.post_norms => "post_attention_norm.weight".to_owned(),
        PRE_MLP_NORM => "ffn_norm.weight".to_owned(),
        POST_MLP_NORM => "post_ffw_norm.weight".to_owned(),
        ATTENTION_NORM => "attn_norm.weight".to_owned(),
        MLP_NORM => "ffn_norm.weight".to_owned(),
        Q_NORM => "attn_q_norm.weight".to_owned(),
        K_NORM => "attn_k_norm.weight".to_owned(),
        // Fused projections; llama.cpp stores gate and up together under the name of up.
        "self_attn.qkv_proj.weight" => "attn_qkv.weight".to_owned(),
        "mlp.gate_up_proj.weight" => "ffn_up.weight".to_owned(),
        _ => {
            let found = Projection::ALL.iter().copied().find_map(|projection| {
                let kind = part.strip_prefix(&format!("{}.", projection.path()))?;
                Some(format!("{}.{kind}", of_projection(projection)))
            });
            found.unwrap_or_else(|| part.to_owned())
        }
    }
}

fn of_projection(projection: Projection) -> &'static str {
    match projection {
        Projection::Q => "attn_q",
        Projection::K => "attn_k",
        Projection::V => "attn_v",
        Projection::O => "attn_output",
        Projection::Gate => "ffn_gate",
        Projection::Up => "ffn_up",
        Projection::Down => "ffn_down",
    }
}

/// Returns how the Hugging Face tensor `name` is converted to a GGUF tensor.
///
/// GGUF norms store the factor by which they multiply. llama.cpp computes the scale of Gemma's
/// scores from the dimensions; a different scale is folded into the norm of query heads, or into
/// the query projection.
pub(super) fn conversion(
    architecture: Architecture,
    model: &ModelConfig,
    name: &str,
) -> Conversion {
    let scaled = match architecture {
        Architecture::Gemma2 => {
            let queries = name.contains(Projection::Q.module());
            queries && !name.ends_with(".lora_A.weight")
        }
        Architecture::Gemma3 => name.ends_with(Q_NORM),
        _ => false,
    };
    Conversion {
        order: row_order(architecture, model, name),
        factor: if scaled { score_factor(architecture, model) } else { 1.0 },
        unit_offset: true,
    }
}

/// Returns the score scale of the model divided by the score scale of llama.cpp. llama.cpp uses
/// `1 / √(hidden / heads)` in the largest models, which it recognizes by their number of layers,
/// and `1 / √head_dim` in other models.
fn score_factor(architecture: Architecture, model: &ModelConfig) -> f64 {
    let largest = if architecture == Architecture::Gemma2 { 46 } else { 62 };
    let width = match model.layers == largest {
        true => model.hidden / model.heads,
        false => model.head_dim(),
    };
    let scalar = model.query_pre_attn_scalar.unwrap_or(model.head_dim() as f64);
    (width as f64 / scalar).sqrt()
}

/// Returns the row of the Hugging Face tensor `name` that becomes each row of the GGUF tensor.
///
/// For the architectures Llama and SmolLM3, llama.cpp rotates adjacent pairs of a head; Hugging
/// Face models rotate element `i` with element `i + head_dim / 2`.
fn row_order(
    architecture: Architecture,
    model: &ModelConfig,
    name: &str,
) -> Box<dyn Fn(usize) -> usize + Sync> {
    let rotated = [Projection::Q, Projection::K].iter().any(|one| name.contains(one.module()));
    let outputs = !name.ends_with(".lora_A.weight");
    let neighbours = matches!(architecture, Architecture::Llama | Architecture::SmolLm3);
    if !neighbours || !rotated || !outputs {
        return Box::new(|row| row);
    }
    let width = model.head_dim();
    Box::new(move |row| {
        let (head, within) = (row / width, row % width);
        head * width + within % 2 * (width / 2) + within / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Preset};
    use crate::parameters::inventory;

    #[test]
    fn every_tensor_has_a_unique_name() {
        let model =
            ModelConfig { qk_norm: true, tie_word_embeddings: false, ..Preset::Tiny.model() };
        let names: std::collections::BTreeSet<_> =
            inventory(&model, Mode::Full).iter().map(|tensor| of(&model, &tensor.name)).collect();
        assert_eq!(names.len(), inventory(&model, Mode::Full).len());
        assert!(names.iter().all(|name| !name.contains("model") && !name.contains("proj")));
        assert!(names.contains("blk.1.attn_q.bias") && names.contains("blk.0.attn_k_norm.weight"));
    }

    #[test]
    fn pairs_of_a_head_become_neighbours() {
        let model = ModelConfig { head_dim: Some(6), ..Preset::Tiny.model() };
        let name = "model.layers.0.self_attn.k_proj.weight";
        let rows = |architecture, name| -> Vec<usize> {
            (0..12).map(row_order(architecture, &model, name)).collect()
        };
        let pairs = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11];
        assert_eq!(rows(Architecture::Llama, name), pairs);
        assert_eq!(rows(Architecture::Qwen2, name), Vec::from_iter(0..12));
        for same in ["v_proj.weight", "q_proj.lora_A.weight"] {
            assert_eq!(rows(Architecture::Llama, same), Vec::from_iter(0..12));
        }
        assert_eq!(rows(Architecture::Llama, "q_proj.lora_B.weight"), pairs);
    }
}
