//! Adapters on the command line: written, continued, refused, merged; and metrics of each step.

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
        assert!(line["grad_norm"].is_number() && line["lr"].is_number());
    }

    // The first batch is the same; the weights are not.
    let done = place.finetune(&["--steps", "1", "--adapter", "a", "--report", "second"]).good();
    assert!(done.out.contains("adapter     lora of rank 3 on q,down, scale 2"), "{}", done.out);
    let second = &json(&place.path("second"))["losses"][0];
    assert!(second.as_f64() < losses[0].as_f64(), "{second} after training, {losses} in it");
}

/// The configurations of the run and of its adapter have layers and patterns. Another run starts
/// from the adapter, and a resumed run has the losses of an uninterrupted one.
#[test]
fn layers_and_patterns_hold_in_every_command() {
    let place = Place::new();
    let flags =
        ["--layers=2", "--mode=lora", "--rank=3", "--lora-targets=q,down", "--lora-layers=1"];
    let patterns =
        [r"--rank-pattern=layers\.\d{1,2}\.mlp\..*=5,q_proj=2", "--alpha-pattern=q_proj=7"];
    let whole = ["--steps=4", "--report=whole", "--adapter-out=a", "--checkpoint=c"];
    let whole: Vec<&str> = [&whole[..], &flags, &patterns].concat();
    let done = place.finetune(&whole).good();
    assert!(done.out.contains("rank 3 on q,down of layers 1, scale"), "{}", done.out);
    let config = json(&place.path("a/adapter_config.json"));
    assert_eq!(config["layers_to_transform"], serde_json::json!([1]));
    let ranks = serde_json::json!({ "q_proj": 2, "down_proj": 5 });
    assert_eq!(config["rank_pattern"], ranks);
    assert_eq!(config["alpha_pattern"], serde_json::json!({ "q_proj": 7 }));

    // run.toml repeats the run.
    let again = ["--config=c/run.toml", "--checkpoint=d", "--adapter-out=b", "--report=again"];
    let mut command = place.program();
    command.arg("finetune").args(again);
    Done::from(command).good();
    let losses = |name: &str| json(&place.path(name))["losses"].clone();
    assert_eq!(losses("again"), losses("whole"));
    let half: Vec<&str> =
        [&["--steps=2", "--schedule-steps=4", "--checkpoint=e"][..], &flags, &patterns].concat();
    place.finetune(&half).good();
    let rest: Vec<&str> = [
        &["--steps=4", "--schedule-steps=4", "--checkpoint=e", "--resume", "--report=rest"][..],
        &flags,
        &patterns,
    ]
    .concat();
    place.finetune(&rest).good();
    let (rest, whole) = (losses("rest"), losses("whole"));
    let all = whole.as_array().unwrap();
    assert_eq!(rest.as_array().unwrap()[..], all[all.len() - rest.as_array().unwrap().len()..]);
    place.finetune(&["--layers=2", "--steps=1", "--adapter=a"]).good();

    let unused = ["--layers=2", "--mode=lora", "--rank-pattern=k_proj=4"];
    place.finetune(&unused).bad(&["`k_proj` matches no module", "q,v of layers all"]);
    let above = ["--layers=2", "--mode=lora", "--lora-layers=2"];
    place.finetune(&above).bad(&["lora_layers", "below 2"]);
    place.finetune(&["--lora-layers=0"]).bad(&["--lora-layers is a LoRA option"]);
}

#[test]
fn adapters_that_do_not_fit_are_refused_before_the_run() {
    let place = Place::new();
    place.finetune(&["--adapter-out", "a"]).bad(&["--mode lora"]);
    let mine = ["--steps", "1", "--mode", "lora", "--adapter-out", "."];
    let done = place.finetune(&mine).bad(&["`text`", "another directory"]);
    assert!(!done.out.contains("warm"), "{}", done.out);
    place
        .finetune(&["--adapter", "absent"])
        .bad(&["absent/adapter_config.json", "hint: --adapter names a directory"]);
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
fn a_learned_text_has_a_lower_loss() {
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
