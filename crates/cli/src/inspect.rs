//! `retrograph inspect`: the contents of a model directory and the memory of a run. No device is
//! opened.

use std::collections::BTreeMap;

use indicatif::{HumanBytes, HumanCount};
use retrograph_finetune::{
    Adapter, Error, GatedActivation, HubError, Mode, ModelConfig, ModelDirectory, Plan,
    RopeScaling, SlidingWindow, TrainerOptions,
};

use crate::Outcome;
use crate::args::InspectArguments;
use crate::error::CliError;
use crate::run_config::with_used_patterns;
use crate::screen::{self, fact};

/// Prints model and memory.
pub(crate) fn run(arguments: &InspectArguments) -> Result<Outcome, CliError> {
    arguments.require_mode()?;
    let model = ModelDirectory::open(&arguments.model)?;
    fact("model", model.path().display());
    dimensions(model.config());
    if let Some(positions) = model.max_position_embeddings() {
        fact("context", format!("{} positions", HumanCount(positions as u64)));
    }
    weights(&model);
    tokenizer(&model);
    let mut config = arguments.config(&model);
    if let Some(path) = arguments.adapter() {
        let adapter = Adapter::open(path).map_err(Error::from)?;
        screen::adapter(&adapter);
        config.mode = Mode::Lora(adapter.lora());
    } else {
        config = with_used_patterns(config)?;
    }
    let mut options = TrainerOptions::default();
    options.step = arguments.micro_batching.step(arguments.batch);
    let plan = Plan::new(&config, options)?;
    let plan = plan.with_base(model).map_err(CliError::of_sequences)?;
    screen::run(&config);
    screen::batch(&config, options.step.ranks, plan.step_pass().micro_batching);
    screen::need(plan.memory());
    Ok(Outcome::Done)
}

fn dimensions(model: &ModelConfig) {
    let ModelConfig { vocab, hidden, layers, intermediate, heads, kv_heads, .. } = *model;
    fact("shape", format!("{layers} layers of width {hidden}, MLP of {intermediate}"));
    let width = model.head_dim();
    fact("", format!("{heads} query heads and {kv_heads} key and value heads of width {width}"));
    let head = if model.tie_word_embeddings {
        "tied to the output projection"
    } else {
        "separate output projection"
    };
    fact("", format!("{} tokens, {head}", HumanCount(vocab as u64)));
    let bias = match (model.qkv_bias, model.o_bias, model.mlp_bias) {
        (false, false, false) => "no biases",
        (true, false, false) => "biases on q, k and v",
        (_, _, false) => "biases on q, k, v and o",
        (_, _, true) => "biases on the MLP, and on attention if the model has them",
    };
    let norm = if model.qk_norm { ", a norm of each query and key head" } else { "" };
    fact("", format!("{bias}{norm}"));
    let scaling = match model.rope_scaling {
        None => String::new(),
        Some(RopeScaling::Llama3 { factor, .. }) => format!(", scaled by {factor} as in Llama 3"),
        Some(RopeScaling::Linear { factor }) => format!(", scaled by {factor}"),
        Some(RopeScaling::Dynamic { factor, original_max_position_embeddings: original }) => {
            format!(", scaled by up to {factor} beyond {original} positions")
        }
        Some(RopeScaling::LongRope(long)) => {
            format!(
                ", scaled as in LongRoPE, with the long factors beyond {} positions",
                long.original_max_position_embeddings
            )
        }
        Some(RopeScaling::Yarn(yarn)) => format!(", scaled by {} as in YaRN", yarn.factor),
    };
    let part = match model.rotary_dim {
        Some(part) => format!(", {part} elements of each head"),
        None => String::new(),
    };
    fact("", format!("rotary base {}{part}{scaling}", model.rope_theta));
    if let Some(interval) = model.no_rope_interval {
        fact("", format!("no rotary positions in the last of every {interval} layers"));
    }
    if let Some(SlidingWindow { size, first_layer, full_interval }) = model.sliding_window {
        let from =
            if first_layer == 0 { String::new() } else { format!(" from layer {first_layer}") };
        let except = full_interval.map_or(String::new(), |interval| {
            format!(", except in the last of every {interval} layers")
        });
        fact("", format!("sliding window of {size} tokens{from}{except}"));
    }
    if let Some(theta) = model.local_rope_theta {
        fact("", format!("rotary base {theta} in layers with the window"));
    }
    if model.activation == GatedActivation::GeluTanh {
        fact("", "GeGLU");
    }
    if model.post_norms {
        fact("", "a norm after attention and after the MLP");
    }
    for (what, cap) in
        [("attention scores", model.attention_softcap), ("logits", model.logit_softcap)]
    {
        if let Some(cap) = cap {
            fact("", format!("{what} capped at {cap}"));
        }
    }
}

/// Prints the tokenizer. An unusable tokenizer is not an error here.
fn tokenizer(model: &ModelDirectory) {
    match model.tokenizer() {
        Ok(tokenizer) if tokenizer.is_bytes() => {
            fact("tokenizer", "no tokenizer.json: bytes are tokens");
        }
        Ok(tokenizer) => {
            let count = HumanCount(tokenizer.len() as u64);
            let template = match tokenizer.chat_template() {
                Ok(_) => "a chat template",
                Err(HubError::NoChatTemplate) => "no chat template",
                Err(_) => "a chat template that cannot be used",
            };
            fact("tokenizer", format!("{count} tokens, {template}"));
        }
        Err(error) => fact("tokenizer", error),
    }
}

/// Prints the files, and the tensors by shape and dtype; equal tensors of all layers share a line.
fn weights(model: &ModelDirectory) {
    for (index, (path, bytes)) in model.files().enumerate() {
        let name = path.file_name().unwrap_or_default().display().to_string();
        let size = HumanBytes(bytes as u64);
        fact(if index == 0 { "files" } else { "" }, format!("{name}, {size}"));
    }
    let mut lines: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut elements = 0;
    for (name, tensor) in model.tensors() {
        elements += tensor.shape.iter().product::<usize>();
        let what = format!("{:?} {:?}", tensor.dtype, tensor.shape);
        *lines.entry((without_layer(name), what)).or_default() += 1;
    }
    fact("parameters", HumanCount(elements as u64));
    for ((name, what), count) in lines {
        let times = if count == 1 { String::new() } else { format!(" \u{d7} {count}") };
        fact("", format!("{name}  {what}{times}"));
    }
}

/// Replaces the number of the layer in a name by `*`.
fn without_layer(name: &str) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.split('.').map(|part| if number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_share_a_name() {
        let name = without_layer("model.layers.17.self_attn.q_proj.weight");
        assert_eq!(name, "model.layers.*.self_attn.q_proj.weight");
        assert_eq!(without_layer("lm_head.weight"), "lm_head.weight");
    }
}
