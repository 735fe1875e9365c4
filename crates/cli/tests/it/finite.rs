//! Weights that are not finite are never reported as success.

use std::fs;
use std::path::Path;

use crate::models::{run, train, write_model};
use crate::program::Place;

/// Overwrites the last element of the file at `path`, whose elements have as many bytes as `value`.
fn overwrite_last(path: &Path, value: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let start = bytes.len() - value.len();
    bytes[start..].copy_from_slice(value);
    fs::write(path, bytes).unwrap();
}

/// A place with a model and an adapter of it.
fn place() -> Place {
    let place = Place::new();
    write_model(&place, 256);
    train(&place, &["--steps", "1", "--adapter-out", "adapter"]).good();
    place
}

const EVAL: [&str; 9] =
    ["eval", "--model", "model", "--text", "text", "--seq", "8", "--device", "sim"];
const MERGE: [&str; 7] = ["merge", "--model", "model", "--adapter", "adapter", "--out", "out"];

#[test]
fn a_model_with_a_weight_that_is_not_a_number_is_named() {
    let place = place();
    overwrite_last(&place.path("model/model.safetensors"), &[0xc0, 0x7f]);
    let named = ["element 7 of `model.norm.weight`", "NaN"];
    run(&place, &EVAL).bad(&[&["the loss is NaN"][..], &named].concat());
    run(&place, &MERGE).bad(&named);
    assert!(!place.path("out").exists());
}

#[test]
fn an_adapter_with_a_weight_that_is_not_a_number_is_named() {
    let place = place();
    overwrite_last(&place.path("adapter/adapter_model.safetensors"), &f32::NAN.to_le_bytes());
    let named = ["model.layers.0.self_attn.v_proj.lora_", "is NaN"];
    run(&place, &[&EVAL[..], &["--adapter", "adapter"]].concat()).bad(&named);
    run(&place, &MERGE).bad(&named);
    assert!(!place.path("out").exists());
    let left: Vec<_> = fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_merge_that_overflows_the_type_of_the_model_is_refused() {
    let place = place();
    let path = place.path("adapter/adapter_model.safetensors");
    overwrite_last(&path, &f32::MAX.to_le_bytes());
    let config = place.path("adapter/adapter_config.json");
    let text = fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["lora_alpha"] = serde_json::json!(1e9);
    fs::write(&config, json.to_string()).unwrap();
    run(&place, &MERGE).bad(&["self_attn.v_proj.weight", "would be", "bf16"]);
    assert!(!place.path("out").exists());
}

#[test]
fn tokens_outside_of_the_vocabulary_have_no_loss() {
    let place = Place::new();
    let line = ["eval", "--text", "text", "--seq", "8", "--device", "sim", "--vocab", "10"];
    run(&place, &line).bad(&["vocabulary"]);
}
