//! Data on the command line: examples by bytes and by a tokenizer, held-out data, and the errors of
//! unusable data.

use std::fs;

use serde_json::{Value, json};

use crate::models::{run, write_model};
use crate::program::{Done, Place, json};
use crate::small_tokenizer::{PLAIN, chatml, tokenizer, write};

/// Trains a small model on the examples of the file `data`.
fn finetune(place: &Place, further: &[&str]) -> Done {
    let model = ["--layers", "1", "--hidden", "16", "--intermediate", "24", "--heads", "4"];
    let sizes = ["--batch", "3", "--seq", "12", "--sample", "4", "--device", "sim"];
    run(place, &[&["finetune", "--data", "data"], &model[..], &sizes, further].concat())
}

fn write_lines(place: &Place, lines: impl IntoIterator<Item = Value>) {
    let lines: Vec<String> = lines.into_iter().map(|line| line.to_string()).collect();
    fs::write(place.path("data"), lines.join("\n")).unwrap();
}

fn sums() -> impl Iterator<Item = Value> {
    let sum = |number: u32| {
        let (a, b) = (number % 7, number / 3);
        json!({ "prompt": format!("{a}+{b}="), "completion": format!("{}.", a + b) })
    };
    (0..30).map(sum)
}

#[test]
fn examples_are_learned_and_held_out_data_is_measured() {
    let place = Place::new();
    write_lines(&place, sums());
    let held_out = ["--holdout", "0.2", "--eval-every", "2", "--steps", "5"];
    let written = ["--report", "r", "--metrics", "m", "--plot", "p.svg", "--verify"];
    let done = finetune(&place, &[&held_out[..], &written].concat()).good();
    for words in [
        "data        24 examples in 12 sequences, packed, 88.9 % full",
        "held out    6 examples in 3 sequences, packed, 86.1 % full",
        "3 sequences of 12 bytes per step",
        "held out    loss ",
        "after 4 steps",
    ] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    let report = json(&place.path("r"));
    let steps: Vec<_> =
        report["held_out"].as_array().unwrap().iter().map(|one| &one["steps"]).collect();
    assert_eq!(steps, [2, 4, 5]);
    assert_eq!(
        (&report["data"]["examples"], &report["data"]["truncated"]),
        (&24.into(), &0.into())
    );
    let text = fs::read_to_string(place.path("m")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let measured: Vec<&Value> =
        lines.iter().filter(|line| line["held_out_loss"].is_number()).collect();
    assert_eq!((lines.len(), measured.len()), (8, 3));
    assert_eq!(
        (&measured[0]["step"], &measured[0]["held_out_loss"]),
        (&1.into(), &report["held_out"][0]["loss"])
    );
    assert_eq!(fs::read_to_string(place.path("p.svg")).unwrap().matches("<circle").count(), 3);
}

#[test]
fn a_token_cache_is_built_once_and_changes_no_loss() {
    let place = Place::new();
    write_lines(&place, sums());
    let train = |further: &[&str]| {
        let steps = ["--steps", "3", "--holdout", "0.2", "--report", "r", "--sample", "0"];
        let done = finetune(&place, &[&steps[..], further].concat()).good();
        let report = json(&place.path("r"));
        (done.out, [report["losses"].clone(), report["held_out"].clone()])
    };
    let (out, losses) = train(&[]);
    assert!(losses[0].is_array() && !out.contains("tokens      "), "{out}");
    for words in ["tokens      written to cache", "tokens      from cache"] {
        let (out, found) = train(&["--token-cache", "cache"]);
        assert!(out.contains(words), "`{words}` is not in: {out}");
        assert_eq!(found, losses);
    }
    assert_eq!(fs::read_dir(place.path("cache")).unwrap().count(), 1);
    let (out, found) = train(&["--token-cache", "none"]);
    assert!(!out.contains("tokens      ") && found == losses, "{out}");
    let flags = ["--steps", "3", "--token-cache", "data"];
    finetune(&place, &flags).bad(&["the token cache", "`data`", "not a directory"]);
}

#[test]
fn epochs_are_steps_over_the_sequences() {
    let place = Place::new();
    write_lines(&place, sums());
    // 15 sequences of packed sums, three in a step.
    let steps = |epochs: &str, further: &[&str]| {
        let given = ["--epochs", epochs, "--report", "r", "--sample", "0"];
        finetune(&place, &[&given[..], further].concat()).good();
        json(&place.path("r"))["steps"].as_u64().unwrap()
    };
    assert_eq!(steps("1", &[]), 5);
    assert_eq!(steps("0.5", &[]), 3);
    assert_eq!(steps("2", &["--batch", "1", "--grad-accumulation", "5"]), 6);
    // The schedule ends with the last step.
    finetune(&place, &["--epochs", "2", "--metrics", "m", "--schedule", "linear"]).good();
    let text = fs::read_to_string(place.path("m")).unwrap();
    let rates =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["lr"].as_f64());
    let rates: Vec<f64> = rates.map(Option::unwrap).collect();
    let falls: Vec<f64> = rates[1..].windows(2).map(|pair| pair[0] - pair[1]).collect();
    assert!(rates.len() == 10 && falls.iter().all(|fall| (fall - falls[0]).abs() < 1e-12));
    // One more step would reach a tenth of the peak.
    assert!((rates[9] - falls[0] - 1e-3).abs() < 1e-12, "{rates:?}");
}

#[test]
fn the_best_weights_are_kept_and_exported_and_a_run_ends_early() {
    let place = Place::new();
    write_lines(&place, sums());
    let diverging = ["--schedule", "constant", "--lr", "0.3", "--warmup", "30", "--steps", "40"];
    let measured = ["--holdout", "0.2", "--eval-every", "2", "--report", "r"];
    let best = ["--save-best", "--checkpoint", "c", "--checkpoint-every", "3", "--mode", "lora"];
    let out = ["--early-stop", "2", "--adapter-out", "a", "--model-out", "m"];
    let done = finetune(&place, &[&diverging[..], &measured, &best, &out].concat()).good();
    assert!(done.out.contains("the held-out loss has no new minimum"), "{}", done.out);
    let report = json(&place.path("r"));
    let losses = report["held_out"].as_array().unwrap();
    let loss = |found: &Value| found["loss"].as_f64().unwrap();
    let lowest = losses.iter().min_by(|one, other| loss(one).total_cmp(&loss(other))).unwrap();
    let steps = report["steps"].as_u64().unwrap();
    assert_eq!(lowest["steps"].as_u64().unwrap() + 4, steps);
    assert!(steps < 40);
    let card = fs::read_to_string(place.path("m").join("README.md")).unwrap();
    assert!(card.contains(&format!("{} steps", lowest["steps"])), "{card}");

    // Exports of the best checkpoint equal the run's outputs; the newest has other weights.
    let export = |flags: &[&str], out: &str| {
        let command = ["export", "--checkpoint", "c", "--adapter-only", "--out", out];
        run(&place, &[&command[..], flags].concat()).good();
        fs::read(place.path(out).join("adapter_model.safetensors")).unwrap()
    };
    let written = fs::read(place.path("a").join("adapter_model.safetensors")).unwrap();
    assert!(export(&["--best"], "b") == written);
    assert!(export(&[], "n") != written);
}

#[test]
fn preferences_are_trained_by_dpo() {
    let place = Place::new();
    let pair = |number: u32| {
        let prompt = format!("{number}?");
        json!({ "prompt": prompt, "chosen": "yes.", "rejected": "no." })
    };
    write_lines(&place, (0..12).map(pair));
    let lora = ["--mode", "lora", "--dpo", "--dpo-beta", "0.5", "--lr", "0.01", "--verify"];
    let run = ["--epochs", "2", "--holdout", "0.25", "--metrics", "m", "--checkpoint", "c"];
    let done = finetune(&place, &[&lora[..], &run].concat()).good();
    for words in ["9 pairs in 18 sequences, padded", "margin ", "% correct", "6 sequences of 12"] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    let text = fs::read_to_string(place.path("m")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Three pairs in a step.
    assert_eq!(lines.len(), 6 + 1);
    let number = |line: &Value, name: &str| line[name].as_f64().unwrap();
    assert!((number(&lines[0], "loss") - std::f64::consts::LN_2).abs() < 1e-4, "{text}");
    let margin = number(&lines[5], "reward_chosen") - number(&lines[5], "reward_rejected");
    assert!((number(&lines[5], "reward_margin") - margin).abs() < 1e-6);
    assert!(margin > number(&lines[0], "reward_margin"), "{text}");
    assert_eq!(number(&lines[5], "reward_accuracy"), 1.0);
    assert!(number(&lines[6], "held_out_loss") < number(&lines[0], "loss"), "{text}");
    let own = fs::read_to_string(place.path("c/run.toml")).unwrap();
    for line in ["dpo = true", "dpo-beta = 0.5", "batch = 3"] {
        assert!(own.lines().any(|one| one == line), "`{line}` is not in: {own}");
    }
    // A resumed run has the same objective.
    let resume = ["--checkpoint", "c", "--resume", "--steps", "8", "--holdout", "0.25"];
    finetune(&place, &[&lora[..4], &["0.2"], &resume].concat()).bad(&["--dpo-beta 0.5"]);
    finetune(&place, &[&lora[..4], &["0.5"], &resume].concat()).good();

    finetune(&place, &["--dpo"]).bad(&["--dpo", "--mode lora or --adapter"]);
    finetune(&place, &["--mode", "lora"]).bad(&["only preference training reads"]);
}

#[test]
fn flags_that_need_others_are_refused() {
    let place = Place::new();
    write_lines(&place, sums());
    finetune(&place, &["--decay-steps", "3"]).bad(&["--decay-steps", "--schedule wsd"]);
    let early = ["--holdout", "0.2", "--early-stop", "2"];
    finetune(&place, &early).bad(&["--early-stop", "--eval-every above 0"]);
    let done = finetune(&place, &["--holdout", "0.2", "--save-best"]);
    assert!(done.code == Some(2) && done.err.contains("--checkpoint"), "{}", done.err);
}

#[test]
fn a_run_on_examples_is_resumed_bit_for_bit() {
    let place = Place::new();
    write_lines(&place, sums());
    let common = ["--holdout", "0.1", "--eval-every", "3", "--schedule-steps", "20", "--report"];
    let whole = [&common[..], &["whole", "--steps", "20"]].concat();
    finetune(&place, &whole).good();
    let part = ["parts", "--checkpoint", "c", "--checkpoint-every", "2", "--steps"];
    finetune(&place, &[&common[..], &part, &["9"]].concat()).good();
    let resume = [&common[..], &part, &["20", "--resume"]].concat();
    finetune(&place, &resume).good();
    let (whole, parts) = (json(&place.path("whole")), json(&place.path("parts")));
    assert_eq!(whole["losses"], parts["losses"]);
    assert_eq!(whole["held_out"], parts["held_out"]);

    // Other data, and the same data in other sequences, are another run.
    finetune(&place, &[&resume[..], &["--packing", "false"]].concat()).bad(&["data"]);
    finetune(&place, &[&resume[..], &["--holdout", "0.3"]].concat()).bad(&["data"]);
}

#[test]
fn each_sequence_length_has_its_own_program() {
    let place = Place::new();
    let long = json!({ "prompt": "0+0=", "completion": "nothing." });
    write_lines(&place, sums().chain([long]));
    let common = ["--buckets", "2", "--steps", "12", "--verify", "--metrics", "m", "--report", "r"];
    let done = finetune(&place, &common).good();
    for words in ["3 sequences of 6 or 12 bytes per step", "12 steps equal the eager step"] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    assert_eq!(json(&place.path("r"))["jit_after_warm"], 0);
    assert_eq!(finetune(&place, &["--buckets", "0"]).code, Some(2));
}

#[test]
fn data_that_cannot_be_used_is_refused_before_the_run() {
    let place = Place::new();
    fs::write(place.path("data"), "{\"text\": \"good\"}\nbad\n\n{\"prompt\": \"x\"}\n").unwrap();
    let words = ["2 of 3 lines", "line 2: ", "line 4: it has a `prompt` without a `completion`"];
    let done = finetune(&place, &[]).bad(&words);
    assert!(!done.out.contains("device"), "{}", done.out);
    fs::write(place.path("data"), "\n").unwrap();
    finetune(&place, &[]).bad(&["data", "no examples"]);
    write_lines(&place, [json!({ "messages": [{ "role": "user", "content": "x" }] })]);
    finetune(&place, &[]).bad(&["no chat template", "hint: --model"]);
    write_lines(&place, [json!({ "prompt": "longer than a sequence", "completion": "x" })]);
    finetune(&place, &[]).bad(&["none of 1 examples", "12 tokens", "hint: --seq"]);
    write_lines(&place, [json!({ "text": "one" })]);
    finetune(&place, &["--holdout", "0.5"])
        .bad(&["a fraction of 0.5 of the 1 examples of `data`", "hint: --holdout"]);
    for wrong in [
        &["finetune"][..],
        &["finetune", "--data", "data", "--text", "text"],
        &["finetune", "--text", "text", "--packing"],
        &["finetune", "--text", "text", "--eval-every", "3"],
    ] {
        let done = run(&place, wrong);
        assert_eq!(done.code, Some(2), "{wrong:?}: {}", done.err);
    }
}

/// A model for a tokenizer with the ChatML tokens.
fn with_tokenizer() -> Place {
    let place = Place::new();
    write_model(&place, PLAIN as usize + 3);
    let tokenizer = tokenizer(&["<|im_start|>", "<|im_end|>", "<|pad|>"]);
    write(&place.path("model"), &tokenizer, &chatml());
    let say = |role: &str, content: &str| json!({ "role": role, "content": content });
    let answers = ["purrs", "runs", "eats"];
    let lines = answers
        .map(|answer| json!({ "messages": [say("user", "the cat"), say("assistant", answer)] }));
    write_lines(&place, lines);
    place
}

#[test]
fn conversations_are_tokenized_by_the_tokenizer_of_the_model() {
    let place = with_tokenizer();
    let lora = ["--mode", "lora", "--adapter-out", "a", "--lr", "0.1", "--checkpoint", "c"];
    let sizes = ["--batch", "3", "--seq", "32", "--steps", "6", "--sample", "3"];
    let common = ["finetune", "--model", "model", "--device", "sim", "--data", "data"];
    let done = run(&place, &[&common[..], &lora, &sizes].concat()).good();
    for words in ["tokenizer   266 tokens", "3 examples in 3 sequences", "32 tokens per step"] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    let eval = |name: &str, further: &[&str]| {
        let common = ["eval", "--model", "model", "--data", "data", "--device", "sim"];
        run(&place, &[&common[..], &["--seq", "32", "--json", name], further].concat()).good();
        let result = json(&place.path(name));
        // `purrs`, `runs` and `eats` have 5, 4 and 3 tokens, and each ends.
        assert_eq!(result["tokens"], 15);
        result["loss"].as_f64().unwrap()
    };
    let (before, after) = (eval("before", &[]), eval("after", &["--adapter", "a"]));
    assert!(after < before, "{after} after training, {before} before");
    assert_eq!(eval("checkpoint", &["--checkpoint", "c"]).to_bits(), after.to_bits());
}

#[test]
fn a_text_has_fewer_tokens_with_a_tokenizer() {
    let place = with_tokenizer();
    fs::write(place.path("text"), "the cat ".repeat(30)).unwrap();
    let common = ["finetune", "--model", "model", "--device", "sim", "--text", "text"];
    let sizes = ["--batch", "2", "--seq", "8", "--steps", "1", "--sample", "0"];
    let done = run(&place, &[&common[..], &sizes].concat()).good();
    assert!(done.out.contains("data        61 tokens of text"), "{}", done.out);
    write(&place.path("model"), &tokenizer(&["<a>", "<b>", "<c>", "<d>"]), &json!({}));
    run(&place, &[&common[..], &sizes].concat()).bad(&[
        "`<d>`",
        "266",
        "use the tokenizer of this model",
    ]);
}

#[test]
fn a_token_outside_the_vocabulary_is_named_before_a_device_is_opened() {
    let place = Place::new();
    write_lines(&place, [json!({ "text": "plain" }), json!({ "text": "of 7 bits, \u{e9}" })]);
    let done = finetune(&place, &["--vocab", "100"]).bad(&["is 111", "100 entries"]);
    assert!(!done.out.contains("device"), "{}", done.out);
    let part = |name: &str| {
        let text = if name == "held" { "x".repeat(200) + "\u{e9}" } else { "\u{e9}x".repeat(90) };
        fs::write(place.path("text"), text).unwrap();
    };
    let sizes = ["--layers", "1", "--hidden", "16", "--intermediate", "24", "--heads", "4"];
    let run_text = |command: &str, further: &[&str]| {
        let common = ["--text", "text", "--seq", "8", "--batch", "1", "--device", "sim"];
        run(&place, &[&[command], &common[..], &sizes, &["--vocab", "128"], further].concat())
    };
    part("all");
    run_text("eval", &[]).bad(&["token 0 of the text `text` is 195", "128 entries", "--vocab"]);
    run_text("finetune", &["--sample", "0"]).bad(&["token 0 of the text `text` is 195"]);
    part("held");
    let done = run_text("finetune", &["--sample", "0", "--holdout", "0.1"]).bad(&["is 195"]);
    assert!(!done.out.contains("device"), "{}", done.out);
}
