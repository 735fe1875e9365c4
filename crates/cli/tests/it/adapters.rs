//! Adapters on the command line: written, continued from, refused, merged; and metrics by step.

use crate::program::{Done, Place, json};

const LORA: [&str; 8] =
    ["--mode", "lora", "--rank", "3", "--alpha", "6", "--lora-targets", "q,down"];

fn merge(place: &Place, names: [&str; 3]) -> Done {
    let mut command = place.program();
    let [model, adapter, out] = names;
    command.args(["merge", "--model", model, "--adapter", adapter, "--out", out]);
    command.into()
}

#[test]
fn a_run_writes_an_adapter_from_which_another_starts() {
    let place = Place::new();
    let arguments = ["--steps", "4", "--adapter-out", "a", "--metrics", "m", "--report", "first"];
    let done = place.finetune(&[arguments.as_slice(), &LORA].concat()).good();
    assert!(done.out.contains("rank 3 on q,down"), "{}", done.out);
    let config = json(&place.path("a/adapter_config.json"));
    assert_eq!(config["target_modules"], serde_json::json!(["q_proj", "down_proj"]));

    let text = std::fs::read_to_string(place.path("m")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    let losses = &json(&place.path("first"))["losses"];
    for (step, line) in lines.iter().enumerate() {
        assert_eq!((&line["step"], &line["clock"]), (&step.into(), &"SIMULATED".into()));
        assert_eq!(line["loss"], losses[step]);
        assert!(line["norm"].is_number() && line["lr"].is_number());
    }

    // The first batch is the same, and the weights are not.
    let done = place.finetune(&["--steps", "1", "--adapter", "a", "--report", "second"]).good();
    assert!(done.out.contains("adapter     lora of rank 3 on q,down, scale 2"), "{}", done.out);
    let second = &json(&place.path("second"))["losses"][0];
    assert!(second.as_f64() < losses[0].as_f64(), "{second} after training, {losses} in it");
}

#[test]
fn adapters_that_do_not_fit_are_refused_before_the_run() {
    let place = Place::new();
    place.finetune(&["--adapter-out", "a"]).bad(&["--mode lora"]);
    let mine = ["--steps", "1", "--mode", "lora", "--adapter-out", "."];
    let done = place.finetune(&mine).bad(&["`text`", "another directory"]);
    assert!(!done.out.contains("warm"), "{}", done.out);
    place.finetune(&["--adapter", "absent"]).bad(&["absent/adapter_config.json"]);
    place.finetune(&["--steps", "1", "--mode", "lora", "--adapter-out", "a"]).good();
    place.finetune(&["--adapter", "a", "--mode", "full"]).bad(&["--mode full"]);
    place.finetune(&["--adapter", "a", "--layers", "2"]).bad(&["layers.1", "another model"]);
    let done = place.finetune(&["--adapter", "a", "--rank", "3"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    merge(&place, ["absent", "a", "out"]).bad(&["absent"]);
    assert!(!place.path("out").exists());
}

/// A checkpoint and an adapter of one run are the same model, and it knows the text.
#[test]
fn a_text_that_was_learnt_costs_less() {
    let place = Place::new();
    let kept = ["--steps", "20", "--checkpoint", "c", "--adapter-out", "a"];
    place.finetune(&[kept.as_slice(), &LORA].concat()).good();
    let eval = |name: &str, further: &[&str]| {
        let mut command = place.program();
        command.args(["eval", "--text", "text", "--device", "sim", "--seq", "16", "--json", name]);
        Done::from({
            command.args(further);
            command
        })
        .good();
        let result = json(&place.path(name));
        assert_eq!((&result["tokens"], &result["simulated"]), (&439.into(), &true.into()));
        result["loss"].as_f64().unwrap()
    };
    let shape = ["--layers", "1", "--hidden", "16", "--intermediate", "24", "--heads", "4"];
    let before = eval("before", &shape);
    let by_checkpoint = eval("c.json", &["--checkpoint", "c"]);
    let by_adapter = eval("a.json", &[shape.as_slice(), &["--adapter", "a"]].concat());
    assert_eq!(by_checkpoint.to_bits(), by_adapter.to_bits());
    assert!(by_adapter < before, "{by_adapter} and {before}");
}
