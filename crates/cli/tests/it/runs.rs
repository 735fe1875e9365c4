//! Runs that succeed, and one that is interrupted.

use crate::program::{Done, Place, json};

#[test]
fn a_run_prints_and_reports_its_progress() {
    let place = Place::new();
    let arguments = ["--steps", "6", "--report", "report.json", "--plot", "loss.svg", "--verify"];
    let done = place.finetune(&arguments).good();
    for word in ["SIMULATED", "warm", "strategy", "operations", "edges", "depth", "peak", "sample"]
    {
        assert!(done.out.contains(word), "`{word}` is not in: {}", done.out);
    }
    assert!(done.out.contains("6 steps equal the eager step bit for bit"), "{}", done.out);

    let report = json(&place.path("report.json"));
    assert_eq!(report["simulated"], true);
    assert_eq!(report["strategy"], "manual");
    assert_eq!(report["verified_bitwise"], true);
    assert_eq!(report["jit_after_warm"], 0);
    assert_eq!(report["steps"], 6);
    assert_eq!(report["losses"].as_array().unwrap().len(), 6);
    assert_eq!(report["nodes"], report["operations"]);
    assert!(report["depth"].as_u64() < report["nodes"].as_u64());
    assert!(report["peak_bytes"].as_u64() > Some(0));
    // The simulated driver needs no memory; the second program of --verify has its own page.
    let memory = &report["memory"];
    let bytes = |name: &str| memory[name].as_u64().unwrap();
    assert_eq!(memory["driver_bytes"]["graphs"], 0);
    assert!(bytes("measured_bytes") <= bytes("planned_bytes"), "{memory}");
    assert!(bytes("planned_bytes") <= bytes("measured_bytes") + (4 << 20), "{memory}");
    assert!(done.out.contains("SIMULATED, without memory of the driver"), "{}", done.out);
    assert!(report["step_ms_median"].is_null(), "simulated times are no measurement");
    assert!(std::fs::read_to_string(place.path("loss.svg")).unwrap().contains("<svg"));
}

#[test]
fn the_readme_shows_what_its_first_command_prints() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let Ok(page) = std::fs::read_to_string(page) else { return };
    let shown = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let place = Place::new();
    let mut command = place.program();
    command.args(["finetune", "--text", "text", "--device", "sim", "--steps", "1"]);
    let printed = Done::from(command).good().out;
    // Times vary.
    let is_time = |word: &str| word.parse::<u32>().is_ok();
    let printed = printed.split(" in ").map(|part| match part.split_once(" ms") {
        Some((time, rest)) if is_time(time) => rest.to_owned(),
        _ => format!(" in {part}"),
    });
    let printed: String = printed.collect();
    for line in shown.expect("the README has a block of output").lines() {
        assert!(printed.contains(line), "the README says\n{line}\nbut the program\n{printed}");
    }
}

#[test]
fn every_strategy_reports_the_same_losses() {
    let place = Place::new();
    let mut all = Vec::new();
    for strategy in ["eager", "manual", "capture"] {
        let arguments = ["--steps", "4", "--report", "r", "--strategy", strategy, "--mode", "lora"];
        place.finetune(&arguments).good();
        let report = json(&place.path("r"));
        assert_eq!(report["strategy"], strategy);
        assert_eq!(report["verified_bitwise"], serde_json::Value::Null);
        all.push(report["losses"].clone());
    }
    assert!(all[0] == all[1] && all[1] == all[2], "{all:?}");
}

#[test]
fn a_resumed_run_reports_the_losses_of_an_uninterrupted_one() {
    let place = Place::new();
    place.finetune(&["--steps", "8", "--report", "whole"]).good();
    let first = ["--steps", "3", "--schedule-steps", "8", "--checkpoint", "dir"];
    place.finetune(&first).good();
    place.finetune(&["--checkpoint", "dir", "--resume", "--report", "resumed"]).good();
    let losses = |name| json(&place.path(name))["losses"].clone();
    assert_eq!(losses("whole"), losses("resumed"));
}

#[test]
fn the_pass_can_be_read_and_drawn() {
    let place = Place::new();
    let done = place.finetune(&["--steps", "1", "--explain", "--dot", "step.dot"]).good();
    assert!(done.out.contains("layer 0/q backward/gemm_wgrad"), "{}", done.out);
    assert!(std::fs::read_to_string(place.path("step.dot")).unwrap().starts_with("digraph"));
}

#[test]
fn the_graph_is_drawn_with_profiled_times_and_profiling_trains_nothing() {
    let place = Place::new();
    place.finetune(&["--steps", "3", "--report", "plain", "--graph", "planned.svg"]).good();
    let planned = std::fs::read_to_string(place.path("planned.svg")).unwrap();
    assert!(planned.starts_with("<svg") && planned.contains("planned"), "{}", &planned[..400]);
    let arguments = ["--steps", "3", "--report", "profiled", "--graph", "step.svg"];
    let profile = ["--profile", "profile.json", "--profile-replays", "2", "--mode", "full"];
    let done = place.finetune(&[arguments.as_slice(), &profile].concat()).good();
    for word in ["profile of", "SIMULATED: times", "layer */q backward", "gemm_wgrad", "share"] {
        assert!(done.out.contains(word), "`{word}` is not in: {}", done.out);
    }
    let [plain, profiled] = ["plain", "profiled"].map(|name| json(&place.path(name)));
    assert_eq!(plain["losses"], profiled["losses"]);
    let profile = json(&place.path("profile.json"));
    assert_eq!(profile["simulated"], true);
    let operations = profile["operations"].as_array().unwrap().len();
    assert_eq!(profiled["nodes"], operations);
    let drawn = std::fs::read_to_string(place.path("step.svg")).unwrap();
    assert!(drawn.contains("SIMULATED") && drawn.contains("critical path"), "{}", &drawn[..400]);
    let beside = std::fs::read_dir(place.path("")).unwrap();
    let left = beside.filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".retrograph-")
    });
    assert_eq!(left.count(), 0, "files are put in place whole");
}

#[test]
fn bench_runs_on_the_simulated_driver() {
    let place = Place::new();
    let mut command = place.program();
    command.args(["bench", "--device", "sim", "--layers", "1", "--sizes", "1x4,2x4"]);
    command.args(["--steps", "2", "--warm-up", "1", "--energy", "--json", "bench.json"]);
    command.arg("--profile");
    let done = crate::program::Done::from(command).good();
    assert!(done.out.contains("SIMULATED"), "{}", done.out);
    let warm: Vec<_> = done.out.lines().filter(|line| line.starts_with("warm ")).collect();
    assert!(matches!(warm[..], [one] if one.ends_with(" jit")), "once for all sizes: {warm:?}");
    let results = json(&place.path("bench.json"));
    let measurements = results["measurements"].as_array().unwrap();
    assert_eq!(measurements.len(), 6, "two sizes by eager, capture and manual");
    assert!(measurements.iter().all(|one| one["last_loss"].as_f64().is_some()));
    assert!(measurements.iter().all(|one| one.get("joules").is_none()), "nothing counts joules");
    for one in measurements {
        let bytes = |name: &str| one["memory"][name].as_u64().unwrap();
        let (planned, measured) = (bytes("planned_bytes"), bytes("measured_bytes"));
        assert!(measured <= planned && planned <= measured + (4 << 20), "{one}");
        let profiled = one["profile"]["operations"].as_array().unwrap().len();
        assert_eq!(one["operations"], profiled);
    }
}

/// The model may be any supported architecture, with dimensions from the file or from options.
#[test]
fn bench_measures_the_model_of_a_config_file() {
    let place = Place::new();
    let config = serde_json::json!({
        "model_type": "gemma2", "num_hidden_layers": 26, "hidden_size": 32, "vocab_size": 256,
        "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    });
    std::fs::write(place.path("config.json"), config.to_string()).unwrap();
    let bench = |arguments: &[&str]| {
        let mut command = place.program();
        command.args(["bench", "--device", "sim", "--strategies", "manual", "--json", "r"]);
        command.args(["--steps", "1", "--warm-up", "1", "--model-config", "config.json"]);
        crate::program::Done::from({
            command.args(arguments);
            command
        })
    };
    bench(&["--sizes", "1x4", "--layers", "2", "--mode", "lora", "--dtype", "bf16"]).good();
    let results = json(&place.path("r"));
    assert_eq!((&results["model_config"], results.get("preset")), (&"config.json".into(), None));
    assert_eq!(results["mode"]["lora"]["rank"], 16, "{results}");
    // ln 256 is 5.55.
    let loss = results["measurements"][0]["last_loss"].as_f64().unwrap();
    assert!((5.0..6.0).contains(&loss), "{loss}");
    bench(&["--decode", "3x8", "--layers", "2"]).good();
    assert_eq!(bench(&["--preset", "tiny"]).code, Some(2));
    std::fs::write(place.path("config.json"), r#"{"model_type": "other"}"#).unwrap();
    bench(&[]).bad(&["config.json"]);
}

/// A run whose reader closes the pipe, as `head` does, continues and writes its outputs.
#[test]
fn a_closed_pipe_does_not_end_a_run() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let place = Place::new();
    let mut command = place.command(&["--steps", "3", "--report", "r"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("output"), "{first}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(json(&place.path("r"))["steps"], 3);
}

/// Ctrl-C ends a run between two steps, with a checkpoint from which it continues.
#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_its_state() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let place = Place::new();
    let mut command = place.command(&["--steps", "100000", "--checkpoint", "dir"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let started = lines.any(|line| line.unwrap().starts_with("train"));
    assert!(started, "the run ended before its first step");
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let latest = std::fs::read_to_string(place.path("dir/latest")).unwrap();
    let step: u32 = latest.trim()["step-".len()..][..8].parse().unwrap();
    let until = (step + 2).to_string();
    let resume = ["--checkpoint", "dir", "--resume", "--steps", &until, "--report", "r"];
    place.finetune(&resume).good();
    assert_eq!(json(&place.path("r"))["steps"], step + 2);
}
