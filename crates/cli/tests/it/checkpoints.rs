//! Checkpoint directories with several runs, a missing `latest`, or files of other programs.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use crate::program::{Done, Place, json};

fn train(place: &Place, further: &[&str]) -> Done {
    place.finetune(&[&["--sample", "0", "--schedule-steps", "100"], further].concat())
}

/// Starts a run that continues until it is killed; returns after its first step.
fn started(place: &Place, further: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = place.command(&["--steps", "100000", "--schedule-steps", "100000"]);
    command.args(further).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("train")), "the run ended too early");
    (child, lines)
}

#[test]
fn two_runs_do_not_share_a_directory_and_a_killed_one_leaves_no_lock() {
    let place = Place::new();
    let (mut first, _lines) = started(&place, &["--checkpoint", "c", "--checkpoint-every", "1"]);
    while !place.path("c/latest").exists() {
        assert_eq!(first.try_wait().unwrap(), None, "the run ended too early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    train(&place, &["--steps", "1", "--checkpoint", "c", "--resume"]).bad(&["another run", "c"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let resume = ["--checkpoint", "c", "--resume", "--steps", "1"];
    place.finetune(&[&["--sample", "0"], resume.as_slice()].concat()).good();
}

#[test]
fn two_runs_do_not_share_a_file_of_metrics() {
    let place = Place::new();
    let (mut first, _lines) = started(&place, &["--metrics", "m"]);
    let before = std::fs::read_to_string(place.path("m")).unwrap();
    train(&place, &["--steps", "1", "--metrics", "m"]).bad(&["the metrics", "another run"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let after = std::fs::read_to_string(place.path("m")).unwrap();
    assert!(after.starts_with(&before) && !before.is_empty(), "{before}{after}");
    train(&place, &["--steps", "1", "--metrics", "m"]).good();
}

#[test]
fn without_latest_the_newest_complete_checkpoint_is_used_and_none_is_removed() {
    let place = Place::new();
    train(&place, &["--steps", "4", "--checkpoint", "c", "--checkpoint-every", "2"]).good();
    std::fs::remove_file(place.path("c/latest")).unwrap();
    let new = ["--steps", "4", "--checkpoint", "c", "--checkpoint-every", "1"];
    train(&place, &new).bad(&["step-00000004.safetensors", "--resume"]);
    for step in [2, 4] {
        assert!(place.path(&format!("c/step-0000000{step}.safetensors")).exists());
    }
    std::fs::write(place.path("c/step-00000009.safetensors"), "cut short").unwrap();
    let resume = ["--steps", "6", "--checkpoint", "c", "--resume", "--report", "r"];
    let done = train(&place, &resume).good();
    assert!(done.out.contains("step-00000004.safetensors after step 4"), "{}", done.out);
    assert!(done.out.contains("`latest` is missing"), "{}", done.out);
    assert_eq!(json(&place.path("r"))["steps"], 6);
}

#[test]
fn files_of_others_are_neither_removed_nor_replaced() {
    let place = Place::new();
    train(&place, &["--steps", "2", "--checkpoint", "c"]).good();
    std::fs::write(place.path("c/step-1.safetensors"), "mine").unwrap();
    std::fs::write(place.path("c/step-00000005.safetensors"), "mine, too").unwrap();
    let other = Place::new();
    train(&other, &["--steps", "1", "--seed", "7", "--checkpoint", "c"]).good();
    let other_run = std::fs::read(other.path("c/step-00000001.safetensors")).unwrap();
    std::fs::write(place.path("c/step-00000001.safetensors"), &other_run).unwrap();
    let resume = ["--checkpoint", "c", "--resume", "--steps", "6", "--checkpoint-every", "1"];
    train(&place, &resume).good();
    let read = |name: &str| std::fs::read(place.path("c").join(name)).unwrap();
    assert_eq!(read("step-1.safetensors"), b"mine");
    assert_eq!(read("step-00000001.safetensors"), other_run);
    assert_eq!(read("step-00000005.safetensors.old-1"), b"mine, too");
    assert!(!place.path("c/step-00000002.safetensors").exists(), "the run's own old one stays");
    assert!(place.path("c/step-00000005.safetensors").exists());
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_one() {
    let place = Place::new();
    std::fs::write(place.path(".retrograph-Ab3dE6"), "half a report").unwrap();
    std::fs::create_dir(place.path(".retrograph-zZ09aA")).unwrap();
    std::fs::write(place.path(".retrograph-notes"), "of somebody").unwrap();
    train(&place, &["--steps", "1", "--report", "r"]).good();
    assert!(!place.path(".retrograph-Ab3dE6").exists());
    assert!(!place.path(".retrograph-zZ09aA").exists());
    assert!(place.path(".retrograph-notes").exists());
}

#[test]
fn a_path_that_is_not_a_directory_is_an_error() {
    let place = Place::new();
    for resume in [&[][..], &["--resume"]] {
        let done = train(&place, &[&["--checkpoint", "text"], resume].concat());
        let done = done.bad(&["`text` is not a directory"]);
        assert!(!done.err.contains("unchanged"), "{}", done.err);
    }
}

#[test]
fn only_a_training_run_gets_the_hint_about_resume() {
    let place = Place::new();
    train(&place, &["--checkpoint", "none", "--resume"]).bad(&["none", "leave out --resume"]);
    let mut command = place.program();
    command.args(["eval", "--text", "text", "--device", "sim", "--checkpoint", "none"]);
    let done = Done::from(command).bad(&["no checkpoint in `none`"]);
    assert!(!done.err.contains("--resume"), "{}", done.err);
}

#[test]
fn fields_that_differ_are_named_with_both_values_and_their_options() {
    let place = Place::new();
    train(&place, &["--steps", "1", "--checkpoint", "c"]).good();
    let resume = ["--checkpoint", "c", "--resume", "--hidden", "32", "--kv-heads", "4"];
    let done = train(&place, &resume).bad(&["hidden: 16", "hidden: 32", "--hidden 16"]);
    assert!(done.err.contains("kv_heads: 2") && done.err.contains("--kv-heads 2"), "{}", done.err);
    assert!(!done.err.contains("rope_theta"), "{}", done.err);
}

#[test]
fn adamw_defaults_match_transformers_and_are_saved_with_the_run() {
    let place = Place::new();
    let losses = |further: &[&str]| {
        train(&place, &[&["--steps", "4", "--report", "r"], further].concat()).good();
        json(&place.path("r"))["losses"].clone()
    };
    let given = ["--beta1", "0.9", "--beta2", "0.999", "--eps", "1e-8"];
    assert_eq!(losses(&[]), losses(&given));
    assert_ne!(losses(&[]), losses(&["--beta2", "0.95"]));
    let other = ["--beta1", "0.8", "--beta2", "0.95", "--eps", "1e-6", "--checkpoint", "c"];
    let whole = losses(&other);
    let resume = ["--steps", "6", "--checkpoint", "c", "--resume"];
    train(&place, &[resume.as_slice(), &["--beta2", "0.999"]].concat()).bad(&[
        "beta2: 0.95",
        "beta2: 0.999",
        "--beta2 0.95",
    ]);
    train(&place, &[resume.as_slice(), &["--report", "r"]].concat()).good();
    let resumed = json(&place.path("r"))["losses"].clone();
    assert_eq!(whole.as_array().unwrap()[..], resumed.as_array().unwrap()[..4]);
    place.finetune(&["--beta2", "1"]).bad(&["beta2", "below 1"]);
}

/// Weights that overflow are not saved, and `latest` names a good checkpoint.
#[test]
fn a_held_out_loss_that_is_not_finite_ends_the_run() {
    let place = Place::new();
    let given = ["--holdout", "0.2", "--eval-every", "1", "--checkpoint", "c", "--warmup", "0"];
    let rate = ["--lr", "1e30", "--min-lr", "0", "--steps", "3", "--checkpoint-every", "1"];
    let done = train(&place, &[given.as_slice(), &rate].concat());
    let done = done.bad(&["held-out data is NaN", "--lr", "no checkpoint was written"]);
    assert!(!place.path("c/latest").exists(), "{}", done.out);
}

#[test]
fn a_run_that_is_complete_is_not_trained_and_keeps_its_configuration() {
    let place = Place::new();
    train(&place, &["--steps", "6", "--checkpoint", "c"]).good();
    let file = || std::fs::read_to_string(place.path("c/run.toml")).unwrap();
    let before = file();
    let done = train(&place, &["--steps", "3", "--checkpoint", "c", "--resume"]).good();
    assert!(done.out.contains("none to train: 6 are done, and the run ends after 3"));
    assert_eq!(file(), before);
}

/// The first part of the run keeps no best checkpoint.
#[test]
fn a_resumed_run_exports_the_best_checkpoint_that_it_names() {
    let place = Place::new();
    let held_out = ["--holdout", "0.2", "--eval-every", "1", "--checkpoint", "c"];
    let rates = ["--lr", "0.3", "--schedule", "constant", "--warmup", "4", "--mode", "lora"];
    let run = |further: &[&str]| train(&place, &[&held_out[..], &rates, further].concat()).good();
    run(&["--steps", "8"]);
    let resume = ["--resume", "--save-best", "--steps"];
    for (steps, out) in [("8", "none"), ("9", "a"), ("14", "b")] {
        let done = run(&[&resume[..], &[steps, "--adapter-out", out]].concat());
        let best = std::fs::read_to_string(place.path("c/best")).ok();
        let Some(best) = best else {
            assert!(done.out.contains("no checkpoint was kept; the weights"), "{}", done.out);
            assert_eq!(out, "none");
            continue;
        };
        let step = best.trim().trim_start_matches("step-").trim_start_matches('0');
        let step = step.trim_end_matches(".safetensors");
        let named = format!("on held-out data after {step} steps");
        let line = done.out.lines().find(|line| line.starts_with("best")).unwrap();
        assert!(line.contains(&named) && step.parse::<u32>().unwrap() > 8, "{best}{}", done.out);
        let exported = format!("{out}-of-best");
        let mut command = place.program();
        command.args(["export", "--checkpoint", "c", "--best", "--adapter-only", "--out"]);
        Done::from({
            command.arg(&exported);
            command
        })
        .good();
        let weights = |folder: &str| {
            std::fs::read(place.path(folder).join("adapter_model.safetensors")).unwrap()
        };
        assert!(weights(out) == weights(&exported));
    }
}
