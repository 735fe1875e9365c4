//! Model directories on the command line.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::program::{Done, Place};
use crate::small_tokenizer;

/// The tensors of a Llama model of one layer of width 8, with its output projection tied.
fn shapes(vocab: usize) -> Vec<(String, Vec<usize>)> {
    let layer = |part: &str| format!("model.layers.0.{part}.weight");
    vec![
        ("model.embed_tokens.weight".to_owned(), vec![vocab, 8]),
        (layer("input_layernorm"), vec![8]),
        (layer("self_attn.q_proj"), vec![8, 8]),
        (layer("self_attn.k_proj"), vec![4, 8]),
        (layer("self_attn.v_proj"), vec![4, 8]),
        (layer("self_attn.o_proj"), vec![8, 8]),
        (layer("post_attention_layernorm"), vec![8]),
        (layer("mlp.gate_proj"), vec![12, 8]),
        (layer("mlp.up_proj"), vec![12, 8]),
        (layer("mlp.down_proj"), vec![8, 12]),
        ("model.norm.weight".to_owned(), vec![8]),
    ]
}

/// Writes the model of `vocab` tokens, with small bf16 values, to the folder `model`.
pub(crate) fn write_model(place: &Place, vocab: usize) {
    let folder = place.path("model");
    fs::create_dir(&folder).unwrap();
    let config = json!({
        "model_type": "llama", "vocab_size": vocab, "hidden_size": 8, "num_hidden_layers": 1,
        "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1,
        "tie_word_embeddings": true, "max_position_embeddings": 32,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in shapes(vocab) {
        let start = data.len();
        let len: usize = shape.iter().product();
        // bf16 values around 0.1, with irregular signs, which repeat after 96.
        let value = |at: usize| 0x3dc0 + (at * 37 % 32) as u16 + 0x8000 * (at * at / 3 % 2) as u16;
        let period: Vec<u8> = (0..96).flat_map(|at| value(at).to_le_bytes()).collect();
        data.extend(period.repeat(len.div_ceil(96)));
        data.truncate(start + 2 * len);
        let places = [start, data.len()];
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": places });
        header.insert(name, entry);
    }
    let header = Value::Object(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &data].concat();
    fs::write(folder.join("model.safetensors"), file).unwrap();
}

pub(crate) fn run(place: &Place, arguments: &[&str]) -> Done {
    let mut command = place.program();
    command.args(arguments);
    command.into()
}

pub(crate) fn train(place: &Place, further: &[&str]) -> Done {
    let common = ["finetune", "--model", "model", "--text", "text", "--device", "sim"];
    let sizes = ["--batch", "2", "--seq", "8", "--mode", "lora", "--sample", "0"];
    run(place, &[&common[..], &sizes, further].concat())
}

fn cut(path: &Path) {
    let whole = fs::read(path).unwrap();
    fs::write(path, &whole[..whole.len() - 1]).unwrap();
}

#[test]
fn a_model_is_described_without_a_device() {
    let place = Place::new();
    write_model(&place, 256);
    let done = run(&place, &["inspect", "--model", "model", "--batch", "2", "--seq", "8"]).good();
    for words in [
        "1 layers of width 8",
        "no biases",
        "32 positions",
        "model.layers.*.mlp.down_proj.weight  BF16 [8, 12]",
        "2,552",
        "planned (",
        "no tokenizer.json",
    ] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    let place = Place::new();
    run(&place, &["inspect", "--model", "model"]).bad(&["no model directory `model`"]);
    std::fs::create_dir(place.path("model")).unwrap();
    run(&place, &["inspect", "--model", "model"]).bad(&["config.json", "model.safetensors"]);
    std::fs::remove_dir(place.path("model")).unwrap();
}

#[test]
fn memory_saving_steps_are_planned_trained_and_resumed() {
    let place = Place::new();
    write_model(&place, 256);
    let saving = ["--batch", "1", "--grad-accumulation", "2", "--recompute"];
    let steps = ["--steps", "2", "--schedule-steps", "4", "--verify", "--checkpoint", "run"];
    let done = train(&place, &[&steps[..], &saving[..]].concat()).good();
    assert!(done.out.contains("2 steps equal the eager step"), "{}", done.out);
    let resumed = ["--steps", "3", "--schedule-steps", "4", "--checkpoint", "run", "--resume"];
    train(&place, &resumed).bad(&["micro-batch is 1", "the run had --batch 1 per GPU with"]);
    train(&place, &[&resumed[..], &saving[..]].concat()).good();
    let inspect = ["inspect", "--model", "model", "--seq", "8", "--batch"];
    let planned = |more: &[&str]| {
        let out = run(&place, &[&inspect[..], more].concat()).good().out;
        let line = out.lines().find(|line| line.contains("planned (")).unwrap();
        line.to_owned()
    };
    assert_ne!(planned(&["64"]), planned(&["64", "--recompute"]));
    // A step of the same size needs less memory with micro-batches of one sequence.
    let one_by_one = planned(&["1", "--grad-accumulation", "64"]);
    assert_ne!(planned(&["64"]), one_by_one);
    assert!(train(&place, &["--grad-accumulation", "0"]).err.contains("1..=1024"));
}

#[test]
fn interleaved_steps_are_reported_trained_and_resumed() {
    let place = Place::new();
    write_model(&place, 256);
    let halves = ["--interleave", "2"];
    let steps = ["--steps", "2", "--schedule-steps", "4", "--verify", "--checkpoint", "run"];
    let done = train(&place, &[&steps[..], &halves[..]].concat()).good();
    assert!(done.out.contains("2 micro-batches of 1, concurrent"), "{}", done.out);
    assert!(done.out.contains("2 steps equal the eager step"), "{}", done.out);
    let resumed = ["--steps", "3", "--schedule-steps", "4", "--checkpoint", "run", "--resume"];
    train(&place, &resumed).bad(&["interleave is 2", "1 is asked for"]);
    train(&place, &[&resumed[..], &halves[..]].concat()).good();
    let three = ["inspect", "--model", "model", "--batch", "64", "--interleave", "3"];
    run(&place, &three).bad(&["interleave is 3", "divisor of the batch, 64"]);
    let both = [&three[..6], &["2", "--grad-accumulation", "2"][..]].concat();
    run(&place, &both).bad(&["interleave is 2", "which is sequential"]);
}

#[test]
fn a_model_is_trained_and_resumed_from_its_directory() {
    let place = Place::new();
    write_model(&place, 256);
    let steps = ["--steps", "2", "--schedule-steps", "4", "--verify", "--checkpoint", "run"];
    let done = train(&place, &steps).good();
    assert!(done.out.contains("2 steps equal the eager step"), "{}", done.out);
    let resume = ["--steps", "4", "--checkpoint", "run", "--resume"];
    let done = train(&place, &resume).good();
    assert!(done.out.contains("step     4 of 4"), "{}", done.out);

    // Another value of a frozen weight is another model.
    let path = place.path("model/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    train(&place, &resume).bad(&["base model"]);
    cut(&path);
    train(&place, &resume).bad(&["model.safetensors", "header"]);
}

#[test]
fn options_that_the_model_directory_determines_are_refused() {
    let place = Place::new();
    write_model(&place, 256);
    let done = train(&place, &["--layers", "3"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    train(&place, &["--seq", "64"]).bad(&["64 tokens", "32 positions", "--seq"]);
}

/// Writes the model with a tokenizer and a chat template, and `positions` positions.
pub(crate) fn write_chat_model(place: &Place, positions: usize) {
    write_model(place, 280);
    let special = ["<|im_start|>", "<|im_end|>", "<|pad|>"];
    let (tokenizer, settings) = (small_tokenizer::tokenizer(&special), small_tokenizer::chatml());
    small_tokenizer::write(&place.path("model"), &tokenizer, &settings);
    let path = place.path("model/config.json");
    let mut config = crate::program::json(&path);
    config["max_position_embeddings"] = positions.into();
    fs::write(path, config.to_string()).unwrap();
}
