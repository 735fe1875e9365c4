//! Configuration files, and the defaults of a run.

use std::fs;

use crate::models::{run, write_model};
use crate::program::{Place, json};

#[test]
fn a_run_is_configured_by_a_file_and_repeated_by_run_toml() {
    let place = Place::new();
    fs::write(
        place.path("run.toml"),
        "text = 'text'\ndevice = 'sim'\nlayers = 1\nhidden = 16\nintermediate = 24\nheads = 4\n\
         batch = 2\nseq = 8\nsample = 0\nsteps = 40\nlr = 0.02\nmode = 'lora'\nrank = 2\n\
         lora-targets = ['q', 'down']\nschedule = 'wsd'\ncheckpoint = 'c'\nreport = 'r'\n",
    )
    .unwrap();
    // The line replaces `steps`, which excludes `--epochs`, and `checkpoint`.
    let line = ["finetune", "--config", "run.toml", "--epochs", "0.25", "--checkpoint", "d"];
    run(&place, &line).good();
    let first = json(&place.path("r"));
    assert_eq!(first["steps"], 7);
    assert!(!place.path("c").exists());
    let own = fs::read_to_string(place.path("d").join("run.toml")).unwrap();
    for line in ["steps = 7", "lora-targets = \"q,down\"", "decay-steps = 1", "eps = 0.00000001"] {
        assert!(own.lines().any(|one| one == line), "`{line}` is not in: {own}");
    }
    assert!(!own.contains("epochs"), "{own}");
    // The file of a run gives the same run, and continues it.
    let again = ["finetune", "--config", "d/run.toml"];
    run(&place, &[&again[..], &["--checkpoint", "e", "--report", "s"]].concat()).good();
    assert_eq!(json(&place.path("s"))["losses"], first["losses"]);
    let more = [&again[..], &["--resume", "--steps", "9"]].concat();
    run(&place, &more).good();
    assert_eq!(json(&place.path("r"))["steps"], 9);

    fs::write(place.path("run.toml"), "text = 'text'\nlearning_rate = 1\nlora_rank = 4\n").unwrap();
    let line = ["finetune", "--config", "run.toml"];
    run(&place, &line).bad(&["run.toml", "unknown key `learning_rate`"]);
    run(&place, &["finetune", "--config", "absent"]).bad(&["the configuration cannot be read"]);
    fs::write(place.path("run.toml"), "text = 'text'\nlr = 'fast'\n").unwrap();
    let done = run(&place, &line);
    let words = ["'fast' for '--lr <LR>'", "the configuration `run.toml` count as flags"];
    assert!(
        done.code == Some(2) && words.iter().all(|word| done.err.contains(word)),
        "{}",
        done.err
    );
}

#[test]
fn a_run_in_tf32x3_is_repeated_and_resumed_by_its_file() {
    let place = Place::new();
    fs::write(place.path("run.toml"), "f32-products = 'tf32x3'\ncheckpoint = 'c'\n").unwrap();
    let sizes = ["--steps", "2", "--sample", "0", "--config", "run.toml"];
    let done = place.finetune(&sizes).good();
    assert!(done.out.contains("precision   f32, large products in tf32x3"), "{}", done.out);
    let own = fs::read_to_string(place.path("c/run.toml")).unwrap();
    assert!(own.lines().any(|line| line == "f32-products = \"tf32x3\""), "{own}");
    let more = ["finetune", "--config", "c/run.toml", "--resume", "--steps", "3"];
    let done = run(&place, &more).good();
    assert!(done.out.contains("precision   f32, large products in tf32x3"), "{}", done.out);
    let line = ["eval", "--text", "text", "--checkpoint", "c", "--seq", "8", "--device", "sim"];
    let done = run(&place, &line).good();
    assert!(done.out.contains("tf32x3"), "{}", done.out);
}

/// TOML is Unicode, and a path need not be.
#[cfg(target_os = "linux")]
#[test]
fn the_file_of_a_run_names_flags_that_it_cannot_hold() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    let text = OsStr::from_bytes(b"t\xff");
    fs::rename(place.path("text"), place.path("").join(text)).unwrap();
    let mut command = place.program();
    command.args(["finetune", "--device", "sim", "--steps", "1", "--sample", "0", "--seq", "8"]);
    command.args(["--checkpoint", "c", "--text"]).arg(text);
    crate::program::Done::from(command).good();
    let own = fs::read_to_string(place.path("c/run.toml")).unwrap();
    assert!(own.contains("# Without --text: the value is not Unicode."), "{own}");
    assert!(own.contains("--resume` continues it") && !own.contains("\ntext ="), "{own}");
}

#[test]
fn the_file_of_a_run_keeps_the_types_of_its_values() {
    let place = Place::new();
    fs::rename(place.path("text"), place.path("0123")).unwrap();
    let seed = u64::MAX.to_string();
    let line = ["finetune", "--text", "0123", "--steps", "2", "--checkpoint", "007", "--seed"];
    let sizes =
        ["--device", "sim", "--seq", "8", "--batch", "1", "--sample", "0", "--prompt", "1e5"];
    run(&place, &[&line[..], &[&seed], &sizes].concat()).good();
    let own = fs::read_to_string(place.path("007/run.toml")).unwrap();
    let seed = format!("seed = \"{seed}\"");
    for line in ["text = \"0123\"", "checkpoint = \"007\"", "prompt = \"1e5\"", &seed] {
        assert!(own.lines().any(|one| one == line), "`{line}` is not in: {own}");
    }
    let more = ["finetune", "--config", "007/run.toml", "--resume", "--steps", "3"];
    run(&place, &more).good();
}

#[test]
fn a_run_that_starts_from_an_adapter_is_repeated_and_resumed_by_its_file() {
    let place = Place::new();
    let lora = ["--mode", "lora", "--rank", "4", "--alpha", "8", "--lora-targets", "all"];
    let steps = ["--steps", "2", "--sample", "0"];
    place.finetune(&[&lora[..], &steps, &["--adapter-out", "a"]].concat()).good();
    let from = ["--adapter", "a", "--checkpoint", "c", "--report", "first"];
    place.finetune(&[&from[..], &steps].concat()).good();
    let again = ["finetune", "--config", "c/run.toml", "--report", "second"];
    run(&place, &[&again[..], &["--checkpoint", "d"]].concat()).good();
    let losses = |name: &str| json(&place.path(name))["losses"].clone();
    assert_eq!(losses("first"), losses("second"));
    run(&place, &[&again[..], &["--resume", "--steps", "3"]].concat()).good();
    assert_eq!(json(&place.path("second"))["steps"], 3);
}

/// Concurrent runs in one directory.
#[test]
fn runs_that_name_no_output_do_not_share_one() {
    let place = Place::new();
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let mut command = place.command(&["--steps", "20", "--sample", "0"]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    for folder in ["retrograph-out", "retrograph-out-2"] {
        assert!(place.path(folder).join("model.safetensors").exists(), "{folder}");
    }
    // A run that fails leaves no directory.
    place.finetune(&["--seq", "440"]).bad(&["440 tokens"]);
    assert!(!place.path("retrograph-out-3").exists());
}

#[test]
fn a_run_without_a_named_output_prints_its_directory() {
    let place = Place::new();
    let steps = ["--steps", "2", "--sample", "0"];
    let done = place.finetune(&steps).good();
    assert!(done.out.contains("output      retrograph-out: the model"), "{}", done.out);
    assert!(place.path("retrograph-out/model.safetensors").exists());
    let done = place.finetune(&[&steps[..], &["--mode", "lora"]].concat()).good();
    assert!(done.out.contains("retrograph-out-2: the adapter"), "{}", done.out);
    assert!(place.path("retrograph-out-2/adapter_config.json").exists());
    place.finetune(&[&steps[..], &["--discard"]].concat()).good();
    place.finetune(&[&steps[..], &["--checkpoint", "c"]].concat()).good();
    assert!(!place.path("retrograph-out-3").exists());
    let both = place.finetune(&[&steps[..], &["--discard", "--model-out", "m"]].concat());
    assert_eq!(both.code, Some(2), "{}", both.err);
}

#[test]
fn a_model_directory_has_its_own_defaults() {
    let place = Place::new();
    write_model(&place, 256);
    let line = ["finetune", "--model", "model", "--text", "text", "--device", "sim"];
    let sizes = ["--mode", "lora", "--sample", "0", "--batch", "1", "--report", "r"];
    let done = run(&place, &[&line[..], &sizes].concat()).good();
    for words in ["sequences   32 tokens, the context of the model", "precision   bf16"] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    // 440 bytes of text are 13 windows, three times.
    assert_eq!(json(&place.path("r"))["steps"], 39);
    let done = run(&place, &["inspect", "--model", "model"]).good();
    assert!(done.out.contains("4 sequences of 32 tokens"), "{}", done.out);
}

#[test]
fn a_run_writes_a_trace_and_events() {
    let place = Place::new();
    let flags = ["--trace", "trace.json", "--tensorboard", "board", "--profile-replays", "1"];
    let run = [&flags[..], &["--steps", "3", "--holdout", "0.2", "--discard"]].concat();
    let done = place.finetune(&run).good();
    assert!(done.out.contains("trace       trace.json"), "{}", done.out);
    let trace = json(&place.path("trace.json"));
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["name"] == "adamw" && event["ph"] == "X"));
    let files: Vec<_> = fs::read_dir(place.path("board")).unwrap().collect();
    assert_eq!(files.len(), 1);
    let bytes = fs::read(files[0].as_ref().unwrap().path()).unwrap();
    let count = |tag: &[u8]| bytes.windows(tag.len()).filter(|one| *one == tag).count();
    assert_eq!([count(b"train/loss"), count(b"eval/loss"), count(b"learning_rate")], [3, 1, 3]);
}
