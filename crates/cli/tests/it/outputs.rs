//! Outputs that cannot be written, or would replace something else: trained state and existing
//! files are kept.

use crate::program::{Done, Place, SMALL};

/// Options by which a run writes a file.
const FILES: [&str; 6] = ["--report", "--plot", "--metrics", "--dot", "--graph", "--profile"];

fn lora(place: &Place, further: &[&str]) -> Done {
    let fixed = ["--mode", "lora", "--steps", "2", "--sample", "0", "--profile-replays", "1"];
    let profile = ["--profile", "profile"];
    let profile: &[&str] = if further.contains(&"--profile") { &[] } else { &profile };
    place.finetune(&[&fixed, profile, further].concat())
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_fails_costs_neither_the_adapter_nor_the_checkpoint() {
    for option in FILES {
        let place = Place::new();
        let given = [option, "/dev/full", "--adapter-out", "a", "--checkpoint", "c"];
        lora(&place, &given).bad(&["/dev/full", "No space left"]);
        assert!(place.path("a/adapter_model.safetensors").is_file(), "{option}");
        assert!(place.path("c/step-00000002.safetensors").is_file(), "{option}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_failure_is_named_and_what_can_be_written_is() {
    let place = Place::new();
    let given = ["--report", "/dev/full", "--plot", "loss.svg", "--metrics", "/dev/full"];
    let done = lora(&place, &given).bad(&["the report", "the metrics"]);
    assert!(place.path("loss.svg").is_file());
    // Once when it happens, and once more at the end.
    assert_eq!(done.err.matches("the metrics cannot be written").count(), 2, "{}", done.err);
    assert!(done.err.contains("; the run continues"), "{}", done.err);
}

/// A folder that was there before the run, and is not at its end.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_removed_during_training_loses_only_its_own_outputs() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let place = Place::new();
    std::fs::create_dir(place.path("gone")).unwrap();
    let mut command = place.command(&["--mode", "lora", "--steps", "60", "--sample", "0"]);
    command.args(["--report", "gone/r", "--checkpoint", "gone/c", "--adapter-out", "a"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("train")));
    std::fs::remove_dir_all(place.path("gone")).unwrap();
    // A file at this path prevents the run from creating the folder again.
    std::fs::write(place.path("gone"), "").unwrap();
    lines.for_each(drop);
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{errors}");
    assert!(errors.contains("gone/c") && errors.contains("gone/r"), "{errors}");
    assert!(place.path("a/adapter_model.safetensors").is_file());
}

/// Starts a run, calls `meanwhile` during training, and returns its results.
fn meanwhile(place: &Place, further: &[&str], meanwhile: impl FnOnce()) -> Done {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut command = place.command(&["--steps", "60", "--sample", "0"]);
    command.args(further).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("train")));
    meanwhile();
    let out = lines.map(|line| line.unwrap() + "\n").collect();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    Done { code: done.status.code(), out, err }
}

#[test]
fn weights_that_nothing_else_has_are_written_beside_a_file_that_appeared() {
    let place = Place::new();
    for (option, weights) in
        [("--adapter-out", "adapter_model.safetensors"), ("--model-out", "model.safetensors")]
    {
        let stray = || {
            std::fs::create_dir(place.path("a")).unwrap();
            std::fs::write(place.path("a/thesis"), "years of work").unwrap();
        };
        let done = meanwhile(&place, &["--mode", "lora", option, "a"], stray);
        done.bad(&["`a` holds `thesis`", "written to `a-2` instead"]);
        assert!(place.path("a-2").join(weights).is_file());
        assert_eq!(std::fs::read_dir(place.path("a")).unwrap().count(), 1);
        for name in ["a", "a-2"] {
            std::fs::remove_dir_all(place.path(name)).unwrap();
        }
    }
    // A checkpoint has them.
    let stray = || std::fs::write(place.path("a"), "").unwrap();
    meanwhile(&place, &["--model-out", "a", "--checkpoint", "c"], stray).bad(&["`a`"]);
    assert!(!place.path("a-2").exists());
}

#[test]
fn a_directory_with_the_name_of_an_adapter_file_is_kept() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("a/adapter_config.json")).unwrap();
    std::fs::write(place.path("a/adapter_config.json/thesis"), "years of work").unwrap();
    let done = lora(&place, &["--adapter-out", "a"]).bad(&["holds `adapter_config.json`"]);
    assert!(!done.out.contains("train"), "{}", done.out);
    assert!(place.path("a/adapter_config.json/thesis").exists());
}

#[cfg(unix)]
#[test]
fn a_link_to_a_directory_and_the_current_directory_are_filled() {
    use std::os::unix::fs::symlink;

    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    symlink("empty", place.path("link")).unwrap();
    symlink("absent", place.path("dangling")).unwrap();
    symlink("checkpoints", place.path("saved")).unwrap();
    let given = ["--adapter-out", "link", "--model-out", "dangling", "--checkpoint", "saved"];
    lora(&place, &given).good();
    assert!(place.path("saved").is_symlink() && place.path("checkpoints/latest").is_file());
    assert!(place.path("empty/adapter_model.safetensors").is_file());
    assert!(place.path("absent/model.safetensors").is_file());
    assert!(place.path("link").is_symlink() && place.path("dangling").is_symlink());
    // The trained weights go into the directory in which the program runs.
    std::fs::create_dir(place.path("here")).unwrap();
    let mut command = place.program();
    command.current_dir(place.path("here")).args(["finetune", "--device", "sim"]).args(SMALL);
    command.args(["--mode", "lora", "--steps", "2", "--sample", "0", "--adapter-out", "."]);
    command.arg("--text").arg(place.path("text"));
    Done::from(command).good();
    assert!(place.path("here/adapter_model.safetensors").is_file());
}

#[test]
fn folders_inside_the_weights_folder_are_refused_before_training() {
    let place = Place::new();
    for other in ["--tensorboard", "--token-cache", "--cache-dir"] {
        for folder in ["a", "a/inside"] {
            let done = lora(&place, &["--adapter-out", "a", other, folder]).bad(&["same folder"]);
            assert!(!done.out.contains("train"), "{}", done.out);
        }
    }
}

#[test]
fn options_that_need_a_checkpoint_are_refused_with_discard() {
    let place = Place::new();
    let needs: [&[&str]; 4] = [
        &["--resume"],
        &["--checkpoint-every", "1"],
        &["--save-best", "--holdout", "0.2"],
        &["--model-dtype", "f32"],
    ];
    for options in needs {
        let done = place.finetune(&[&["--discard"], options].concat());
        assert_eq!(done.code, Some(2), "{options:?}: {}", done.err);
    }
}

#[test]
fn a_file_of_another_kind_is_not_replaced() {
    let place = Place::new();
    std::fs::write(place.path("thesis"), "years of work").unwrap();
    for option in FILES {
        let done = lora(&place, &[option, "thesis"]).bad(&["thesis", "another kind"]);
        assert!(!done.out.contains("device"), "{}", done.out);
    }
    assert_eq!(std::fs::read_to_string(place.path("thesis")).unwrap(), "years of work");
    for option in FILES {
        lora(&place, &[option, "own"]).good();
        lora(&place, &[option, "own"]).good();
        std::fs::remove_file(place.path("own")).unwrap();
    }
}

#[test]
fn no_output_replaces_an_input_or_another_output() {
    let place = Place::new();
    let text = std::fs::read(place.path("text")).unwrap();
    for option in FILES {
        lora(&place, &[option, "./text"]).bad(&["text", "reads this file"]);
    }
    assert_eq!(std::fs::read(place.path("text")).unwrap(), text);
    lora(&place, &["--report", "same", "--plot", "./same"]).bad(&["the same file"]);
    let given = ["--adapter-out", "a", "--checkpoint", "a/c"];
    lora(&place, &given).bad(&["the checkpoints", "another one"]);
}

#[test]
fn options_of_the_sample_are_checked_before_training() {
    let place = Place::new();
    let refused = |further: &[&str], words: &[&str]| {
        let done = place.finetune(&[&["--steps", "1"], further].concat()).bad(words);
        assert!(!done.out.contains("device"), "{}", done.out);
    };
    refused(&["--temperature", "NaN"], &["temperature is NaN"]);
    let done = place.finetune(&["--steps", "1", "--sample", "18446744073709551615"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("--sample"), "{}", done.err);
    refused(&["--vocab", "128", "--prompt", "caf\u{e9}"], &["token 3", "195", "128"]);
    std::fs::create_dir(place.path("a")).unwrap();
    std::fs::write(place.path("a/thesis"), "years of work").unwrap();
    refused(&["--mode", "lora", "--adapter-out", "a"], &["thesis"]);
}

#[test]
fn lora_options_are_refused_if_all_weights_are_trained() {
    let place = Place::new();
    let options: [&[&str]; 7] = [
        &["--rank", "4"],
        &["--alpha", "8"],
        &["--lora-targets", "q"],
        &["--rslora"],
        &["--dora"],
        &["--lora-dropout", "0.1"],
        &["--train-norms"],
    ];
    for option in options {
        place.finetune(&[&["--mode", "full"], option].concat()).bad(&[option[0], "--mode lora"]);
    }
    place.finetune(&["--adapter-out", "a"]).bad(&["all weights", "--mode lora"]);
    let mut command = place.program();
    command.args(["bench", "--device", "sim", "--rank", "4"]);
    Done::from(command).bad(&["--rank", "--mode lora"]);
}

#[test]
fn a_dimension_that_is_too_large_is_named() {
    let place = Place::new();
    place.finetune(&["--hidden", "2147483648"]).bad(&["hidden is 2147483648"]);
    let rank = ["--mode", "lora", "--rank", "4294967296"];
    place.finetune(&rank).bad(&["rank is 4294967296"]);
}

#[test]
fn a_byte_outside_the_vocabulary_is_named_before_a_device_is_opened() {
    let place = Place::new();
    let text = "all work and no play. ".repeat(20) + "\u{e9}";
    std::fs::write(place.path("text"), text).unwrap();
    for further in [&[][..], &["--holdout", "0.2"]] {
        let done = place.finetune(&[&["--vocab", "128"], further].concat());
        let done = done.bad(&["is 195", "128 entries"]);
        assert!(!done.out.contains("device") && !done.err.contains("--lr"), "{}", done.err);
    }
}

/// Evaluation trains nothing, and prints no trained parameters.
#[test]
fn an_evaluation_does_not_count_trained_parameters() {
    let place = Place::new();
    let mut command = place.program();
    command.args(["eval", "--text", "text", "--device", "sim", "--layers", "1", "--seq", "8"]);
    let done = Done::from(command).good();
    assert!(done.out.contains("parameters") && !done.out.contains("trained"), "{}", done.out);
}

#[test]
fn results_of_other_commands_replace_no_files_of_another_kind() {
    let place = Place::new();
    place.finetune(&["--steps", "1", "--checkpoint", "c", "--sample", "0"]).good();
    std::fs::write(place.path("thesis"), "years of work").unwrap();
    let commands: [&[&str]; 3] = [
        &["eval", "--text", "text", "--checkpoint", "c", "--seq", "8"],
        &["generate", "--checkpoint", "c", "--prompt", "all", "--max-tokens", "2"],
        &["bench", "--layers", "1", "--sizes", "1x4", "--steps", "1", "--warm-up", "1"],
    ];
    for command in commands {
        let run = |file: &str| {
            let mut program = place.program();
            program.args(command).args(["--device", "sim", "--json", file]);
            Done::from(program)
        };
        run("thesis").bad(&["thesis", "another kind"]);
        let own = format!("{}.json", command[0]);
        run(&own).good();
        run(&own).good();
    }
    assert_eq!(std::fs::read_to_string(place.path("thesis")).unwrap(), "years of work");
}
