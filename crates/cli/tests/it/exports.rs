//! Exported models on the command line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::models::{run, train, write_chat_model, write_model};
use crate::program::{Done, Place, json};

/// Runs `retrograph generate` with greedy decoding.
fn greedy(place: &Place, further: &[&str]) -> String {
    let line = ["generate", "--device", "sim", "--prompt", "all w", "--greedy", "--quiet"];
    run(place, &[&line[..], &["--max-tokens", "12"], further].concat()).good().out
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_and_its_checkpoint_write_the_same_model() {
    let place = Place::new();
    let done = place.finetune(&["--steps", "3", "--checkpoint", "c", "--model-out", "m"]).good();
    assert!(done.out.contains("written     m: "), "{}", done.out);
    assert_eq!(
        names(&place, "m"),
        [
            "README.md",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    let card = fs::read_to_string(place.path("m/README.md")).unwrap();
    assert!(card.contains("all weights, 3 steps"), "{card}");
    run(&place, &["export", "--checkpoint", "c", "--out", "e"]).good();
    for name in ["model.safetensors", "config.json", "tokenizer.json"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert_eq!(read("m"), read("e"), "{name}");
    }
    assert_eq!(greedy(&place, &["--model", "m"]), greedy(&place, &["--checkpoint", "c"]));
}

#[test]
fn a_merged_run_its_adapter_and_its_checkpoint_are_the_same_model() {
    let place = Place::new();
    write_model(&place, 256);
    fs::write(place.path("model/LICENSE"), "mine").unwrap();
    fs::write(place.path("model/README.md"), "---\nlicense: mit\n---\nof the base").unwrap();
    let kept = ["--checkpoint", "c", "--adapter-out", "a", "--model-out", "m"];
    let form = ["--model-dtype", "f32", "--max-shard-size", "4KB"];
    train(
        &place,
        &[&["--steps", "12", "--lr", "0.1", "--lora-targets", "all"], &kept[..], &form].concat(),
    )
    .good();
    let form = ["--dtype", "f32", "--max-shard-size", "4KB", "--out"];
    let base = ["--model", "model"];
    let adapted = ["--adapter", "a"];
    run(&place, &[&["export", "--checkpoint", "c"], &base[..], &form, &["e"]].concat()).good();
    run(&place, &[&["export"], &base[..], &adapted, &form, &["f"]].concat()).good();
    run(&place, &[&["merge"], &base[..], &adapted, &form, &["g"]].concat()).good();
    let files = names(&place, "m");
    assert!(files.iter().any(|name| name == "model.safetensors.index.json"), "{files:?}");
    assert!(files.iter().any(|name| name == "LICENSE"), "{files:?}");
    for folder in ["e", "f", "g"] {
        assert_eq!(names(&place, folder), files);
        for name in files.iter().filter(|name| *name != "README.md") {
            let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
            assert_eq!(read("m"), read(folder), "{folder}/{name}");
        }
    }
    let card = fs::read_to_string(place.path("g/README.md")).unwrap();
    assert!(card.contains("license: mit") && !card.contains("of the base"), "{card}");
    assert!(card.contains("base model: `model`") && card.contains("merged"), "{card}");
    assert_eq!(json(&place.path("m/config.json"))["torch_dtype"], "float32");
    let text = greedy(&place, &["--model", "g"]);
    assert_eq!(text, greedy(&place, &["--model", "model", "--adapter", "a"]));
    assert_ne!(text, greedy(&place, &["--model", "model"]));
    // By default, weights keep the type of the base model.
    run(&place, &["merge", "--model", "model", "--adapter", "a", "--out", "h"]).good();
    let size = |folder: &str| fs::metadata(place.path(folder)).unwrap().len();
    assert!(size("h/model.safetensors").abs_diff(size("model/model.safetensors")) < 100);
}

/// Checks only the GGUF header: the tests of `crates/finetune` read the contents.
#[test]
fn models_and_adapters_become_gguf_files() {
    let place = Place::new();
    let lora = ["--mode", "lora", "--adapter-out", "a", "--checkpoint", "c"];
    place.finetune(&[&["--steps", "2"], &lora[..]].concat()).good();
    let export = ["export", "--checkpoint", "c", "--out"];
    let gguf = ["--format", "gguf"];
    let is_gguf = |name: &str| fs::read(place.path(name)).unwrap().starts_with(b"GGUF\x03");
    let done = run(&place, &[&export[..], &["m.gguf"], &gguf, &["--dtype", "q8_0"]].concat());
    assert!(done.good().out.contains("written     m.gguf: ") && is_gguf("m.gguf"));
    run(&place, &[&export[..], &["a.gguf", "--adapter-only"], &gguf].concat()).good();
    assert!(is_gguf("a.gguf"));
    run(&place, &[&export[..], &["m.gguf"], &gguf].concat()).bad(&["m.gguf", "not replaced"]);
    let sized = [&export[..], &["s.gguf", "--max-shard-size", "1MB"], &gguf].concat();
    run(&place, &sized).bad(&["--max-shard-size has no effect without --format hf"]);
    run(&place, &[&export[..], &["b", "--adapter-only"]].concat()).good();
    let again = [&export[..], &["b", "--adapter-only"]].concat();
    run(&place, &again).bad(&["`b` holds", "another directory"]);
    let weights = |folder: &str| fs::read(place.path(folder).join("adapter_model.safetensors"));
    assert_eq!(weights("a").unwrap(), weights("b").unwrap());
    run(&place, &[&export[..], &["n", "--dtype", "q8_0"]].concat()).bad(&["q8_0", "bf16"]);
    place.finetune(&["--steps", "1", "--checkpoint", "full"]).good();
    let full = ["export", "--checkpoint", "full", "--out", "n", "--adapter-only"];
    run(&place, &full).bad(&["no LoRA adapter", "--adapter-only"]);
    let rounded = [&export[..], &["r", "--adapter-only", "--dtype", "f16"]].concat();
    run(&place, &rounded).bad(&["weights in f32", "--dtype f16"]);
    assert!(!place.path("n").exists());
}

#[test]
fn output_paths_are_checked_before_anything_is_read() {
    let place = Place::new();
    let refused = |line: &[&str], words: &[&str]| {
        let done = place.finetune(&[&["--steps", "1"], line].concat()).bad(words);
        assert!(!done.out.contains("warm"), "{}", done.out);
    };
    refused(&["--model-out", "."], &["`text`", "another directory"]);
    refused(&["--model-out", "m", "--checkpoint", "m/c"], &["the checkpoints", "same folder"]);
    refused(&["--model-out", "m", "--report", "m/r"], &["no such folder"]);
    let both = ["--mode", "lora", "--adapter-out", "m", "--model-out", "m"];
    refused(&both, &["the model", "same folder"]);
    let status = |line: &[&str]| {
        let done: Done = run(&place, line);
        assert_eq!(done.code, Some(2), "{}", done.err);
    };
    status(&["finetune", "--text", "text", "--model-dtype", "f16"]);
    status(&["export", "--out", "o"]);
    status(&["export", "--model", "m", "--out", "o", "--dtype", "int8"]);
    status(&["export", "--model", "m", "--out", "o", "--max-shard-size", "big"]);
    run(&place, &["export", "--model", "absent", "--out", "o"])
        .bad(&["absent", "nothing is downloaded"]);
    run(&place, &["export", "--checkpoint", "absent", "--out", "o"]).bad(&["no checkpoint"]);
    assert!(!place.path("o").exists() && !place.path("m").exists());
}

#[test]
fn only_files_of_the_model_are_copied_even_if_they_disappear() {
    let place = Place::new();
    write_chat_model(&place, 256);
    for own in [".env", "train.jsonl", "notes.txt"] {
        fs::write(place.path("model").join(own), "secret").unwrap();
    }
    fs::write(place.path("model/LICENSE"), "mine").unwrap();
    let mut command = place.program();
    command.args(["finetune", "--model", "model", "--text", "text", "--device", "sim"]);
    command.args(["--batch", "2", "--seq", "8", "--sample", "0", "--mode", "lora"]);
    command.args(["--steps", "40", "--model-out", "m"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("train")));
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE"] {
        fs::rename(place.path("model").join(name), place.path(name)).unwrap();
    }
    lines.for_each(drop);
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(
        names(&place, "m"),
        [
            "LICENSE",
            "README.md",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    let read = |path: &str| fs::read(place.path(path)).unwrap();
    assert!(read("m/tokenizer.json") == read("tokenizer.json"));
}
