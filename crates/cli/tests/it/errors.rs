//! Each error names its cause and a remedy, sets a nonzero exit status, and loses no data.

use crate::program::{Done, Place};

/// A preference.
const PAIR: &str = r#"{ "prompt": "a", "chosen": "b", "rejected": "c" }"#;

#[test]
fn a_missing_text() {
    let place = Place::new();
    let mut command = place.program();
    command.args(["finetune", "--text", "absent.txt", "--device", "sim"]);
    Done::from(command).bad(&["absent.txt", "readable file"]);
}

#[test]
fn a_text_that_is_shorter_than_a_sequence() {
    let place = Place::new();
    place.finetune(&["--seq", "440"]).bad(&["`text` has 440 tokens", "441", "--seq"]);
}

#[test]
fn a_lack_of_device_memory_is_reported_before_any_upload() {
    let place = Place::new();
    let mut command = place.program();
    command.args(["finetune", "--text", "text", "--device", "sim", "--preset", "qwen2.5-1.5b"]);
    let done = Done::from(command).bad(&["GiB of device memory", "--preset", "Nothing was"]);
    assert!(done.err.contains("5.75 GiB for parameters"), "{}", done.err);
    assert!(!done.out.contains("strategy"), "{}", done.out);
}

#[test]
fn results_without_a_folder_are_refused_before_the_run() {
    let place = Place::new();
    let done = place.finetune(&["--report", "absent/report.json"]).bad(&["absent", "create it"]);
    assert!(!done.out.contains("train"), "{}", done.out);
    place.finetune(&["--plot", "."]).bad(&["the plot", "give a file"]);
    let done = place.finetune(&["--graph", "absent/step.svg"]).bad(&["the graph", "create it"]);
    assert!(!done.out.contains("warm"), "{}", done.out);
}

#[test]
fn a_missing_device() {
    // The error names the driver if there is none, else the device.
    let place = Place::new();
    let done = place.finetune_on("cuda:77");
    let named = done.err.contains("no CUDA driver") || done.err.contains("no device 77");
    assert!(named, "{}", done.err);
    assert_eq!(done.code, Some(1));
}

#[test]
fn dimensions_that_do_not_fit_each_other() {
    let place = Place::new();
    place.finetune(&["--kv-heads", "3"]).bad(&["kv_heads", "divisor"]);
    place.finetune(&["--lr", "NaN"]).bad(&["lr", "finite"]);
    place.finetune(&["--clip", "0"]).bad(&["clip", "above 0"]);
    place.finetune(&["--schedule-steps", "0"]).bad(&["steps is 0", "--schedule-steps"]);
    place.finetune(&["--epochs", "1e300"]).bad(&["epochs is 1e300", "at most"]);
    std::fs::write(place.path("pairs"), PAIR).unwrap();
    let dpo = ["finetune", "--data", "pairs", "--dpo", "--mode", "lora", "--device", "sim"];
    for (flag, value) in [("--dpo-beta", "0"), ("--dpo-label-smoothing", "0.5")] {
        let mut command = place.program();
        command.args(dpo).args([flag, value]);
        Done::from(command).bad(&[flag]);
    }
}

#[test]
fn tf32x3_without_products_in_f32() {
    let place = Place::new();
    let (bf16, scheme) = (["--dtype", "bf16"], ["--f32-products", "tf32x3"]);
    for command in ["finetune", "eval", "bench"] {
        let mut line = place.program();
        line.args([command, "--device", "sim"]).args(bf16).args(scheme);
        if command != "bench" {
            line.args(["--text", "text"]);
        }
        Done::from(line).bad(&["f32_products is tf32x3", "split-f16", "--dtype f32"]);
    }
    let done = place.finetune(&["--f32-products", "tf32"]);
    assert!(done.code == Some(2) && done.err.contains("split-f16 or tf32x3"), "{}", done.err);
}

#[test]
fn a_loss_that_is_not_finite_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    let arguments = [
        "--lr",
        "1e30",
        "--min-lr",
        "0",
        "--warmup",
        "0",
        "--steps",
        "60",
        "--checkpoint",
        "kept",
        "--checkpoint-every",
        "1",
    ];
    let done = place.finetune(&arguments).bad(&["step", "gradient norm", "--lr", "kept"]);
    let latest = std::fs::read_to_string(place.path("kept/latest")).unwrap();
    assert!(done.err.contains(latest.trim()), "{latest} is not in: {}", done.err);
    assert!(place.path("kept").join(latest.trim()).exists());
}

#[test]
fn a_checkpoint_of_another_model() {
    let place = Place::new();
    place.finetune(&["--steps", "2", "--checkpoint", "dir"]).good();
    let resume = ["--checkpoint", "dir", "--resume"];
    let with = |further: &[&str]| place.finetune(&[&resume, further].concat());
    with(&["--hidden", "32"]).bad(&["model", "hidden: 16", "hidden: 32"]);
    with(&["--mode", "lora"]).bad(&["mode", "the run had --mode full"]);
    let scheme = ["precision", "f32_products: tf32x3", "the run had --f32-products split-f16"];
    with(&["--f32-products", "tf32x3"]).bad(&scheme);
    with(&["--holdout", "0.3"]).bad(&["data", "--holdout", "run.toml"]);
    with(&["--lr", "0.5"]).bad(&["optimizer"]);
    std::fs::write(place.path("text"), "another text altogether. ".repeat(9)).unwrap();
    with(&[]).bad(&["data"]);
}

#[test]
fn a_checkpoint_that_is_damaged_or_missing() {
    let place = Place::new();
    place.finetune(&["--checkpoint", "none", "--resume"]).bad(&["no checkpoint", "--resume"]);
    place.finetune(&["--steps", "2", "--checkpoint", "dir"]).good();
    place.finetune(&["--checkpoint", "dir"]).bad(&["dir", "--resume"]);
    let file = place.path("dir/step-00000002.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    place.finetune(&["--checkpoint", "dir", "--resume"]).bad(&["SHA-256", "latest"]);
}

#[test]
fn a_result_that_cannot_be_written() {
    let place = Place::new();
    place.finetune(&["--steps", "1", "--report", "no/such/folder.json"]).bad(&["report", "folder"]);
}

#[test]
fn a_wrong_line_is_explained_by_the_parser() {
    let place = Place::new();
    let done = place.finetune(&["--preset", "qwen3"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("qwen2.5-0.5b"), "{}", done.err);
    let done = place.finetune(&["--resume"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("--checkpoint"), "{}", done.err);
}

impl Place {
    fn finetune_on(&self, device: &str) -> Done {
        let mut command = self.program();
        command.args(["finetune", "--text", "text", "--device", device]);
        command.into()
    }
}

/// What would fail later is refused before the data is read.
#[test]
fn places_and_programs_that_cannot_be_used_are_refused_at_first() {
    let place = Place::new();
    std::fs::write(place.path("file"), "kept").unwrap();
    let refused = |further: &[&str], words: &[&str]| {
        let done = place.finetune(&[&["--text", "absent"], further].concat()).bad(words);
        assert!(!done.err.contains("the text `absent`"), "{}", done.err);
    };
    for (option, what) in [
        ("--tensorboard", "the events"),
        ("--token-cache", "the token cache"),
        ("--cache-dir", "the kernel cache"),
        ("--model-out", "the model"),
    ] {
        refused(&[option, "file"], &[what, "`file`", "not a directory"]);
    }
    refused(&["--checkpoint", "file/c"], &["the checkpoints", "`file/c`"]);
    refused(&["--bundle", "file"], &["file is not a bundle", "hint: --bundle"]);
    refused(&["--compile", "ptxas=absent/ptxas"], &["`absent/ptxas`", "correct --compile"]);
    let held_out: [&[&str]; 3] = [
        &["--eval-every", "1"],
        &["--save-best", "--checkpoint", "c"],
        &["--early-stop", "1", "--eval-every", "1"],
    ];
    for uses in held_out {
        refused(&[&["--holdout", "0"], uses].concat(), &["--holdout above 0"]);
    }
    assert_eq!(std::fs::read_to_string(place.path("file")).unwrap(), "kept");
}
