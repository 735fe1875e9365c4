//! Sliding windows in `config.json`.

use retrograph_finetune::{HubError, ModelConfig, ModelDirectory, SlidingWindow};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::golden::config;
use crate::hub::{directory, error, qwen2, tensors, trains, with};
use crate::models::LORA;

#[test]
fn sliding_windows_are_those_of_each_architecture() {
    let stored = tensors(&config(LORA).model, Dtype::BF16);
    let plain = ModelConfig { qkv_bias: false, ..config(LORA).model };
    let stored_plain = tensors(&plain, Dtype::BF16);
    let window = |kind: &str, changes: Value| {
        let config = with(with(qwen2(), json!({ "model_type": kind })), changes);
        let stored = if kind == "qwen2" { &stored } else { &stored_plain };
        let opened = ModelDirectory::open(directory(&config, stored).path()).unwrap();
        opened.config().sliding_window.map(|window| (window.size, window.first_layer))
    };
    let [full, sliding] = ["full_attention", "sliding_attention"];
    for (kind, changes, expected) in [
        ("qwen2", json!({}), None),
        ("qwen2", json!({ "sliding_window": 8, "max_window_layers": 1 }), None),
        ("qwen2", json!({ "use_sliding_window": true }), None),
        ("qwen2", json!({ "use_sliding_window": true, "max_window_layers": 1 }), Some((4096, 1))),
        (
            "qwen2",
            json!({ "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0 }),
            Some((8, 0)),
        ),
        (
            "qwen2",
            json!({
                "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0,
                "layer_types": [full, sliding],
            }),
            Some((8, 1)),
        ),
        ("qwen2", json!({ "use_sliding_window": true, "layer_types": [full, full] }), None),
        (
            "qwen2",
            json!({ "use_sliding_window": true, "layer_types": [sliding, full] }),
            Some((4096, 0)),
        ),
        ("llama", json!({ "sliding_window": 8 }), None),
        ("mistral", json!({}), Some((4096, 0))),
        ("mistral", json!({ "sliding_window": 8 }), Some((8, 0))),
        ("mistral", json!({ "sliding_window": null }), None),
    ] {
        assert_eq!(window(kind, changes.clone()), expected, "{kind} with {changes}");
    }
    for types in [json!([full]), json!([full, "chunked_attention"])] {
        let changes = json!({
            "use_sliding_window": true, "sliding_window": 8, "layer_types": types,
        });
        let found = error(&directory(&with(qwen2(), changes), &stored));
        assert!(matches!(found, HubError::Unsupported { field: "layer_types", .. }), "{found}");
    }
    let zero = json!({ "model_type": "mistral", "sliding_window": 0 });
    let folder = directory(&with(qwen2(), zero), &stored_plain);
    let error = ModelDirectory::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("sliding_window is 0"), "{error}");
}

#[test]
fn mistral_is_trained_with_its_window() {
    let sliding_window = Some(SlidingWindow::new(4, 0));
    let model = ModelConfig { qkv_bias: false, sliding_window, ..config(LORA).model };
    let json = with(qwen2(), json!({ "model_type": "mistral", "sliding_window": 4 }));
    let folder = directory(&json, &tensors(&model, Dtype::F32));
    assert_eq!(*ModelDirectory::open(folder.path()).unwrap().config(), model);
    trains(&json, &folder, LORA, Dtype::F32);
}
