//! Text from a model directory on the command line.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::models::{run, train, write_model};
use crate::program::{Done, Place, json};

/// Runs `retrograph generate` with the test model, which has 32 positions and byte tokens.
fn generate(place: &Place, further: &[&str]) -> Done {
    let common = ["generate", "--model", "model", "--device", "sim"];
    run(place, &[&common[..], further].concat())
}

fn tokens(place: &Place) -> Vec<u64> {
    let tokens = &json(&place.path("r.json"))["tokens"];
    tokens.as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
}

#[test]
fn a_prompt_is_continued_and_every_step_verified() {
    let place = Place::new();
    write_model(&place, 256);
    let line = ["--prompt", "abc", "--max-tokens", "6", "--verify", "--json", "r.json"];
    let done = generate(&place, &line).good();
    for words in ["SIMULATED", "greedy", "6 tokens", "6 steps equal the eager step", "nodes"] {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    assert!(!done.out.contains("tokens per second"), "no time of the simulator: {}", done.out);
    let result = json(&place.path("r.json"));
    assert_eq!(result["prompt_tokens"], serde_json::json!([97, 98, 99]));
    assert_eq!((&result["verified_steps"], &result["jit_after_warm"]), (&6.into(), &0.into()));
    assert!(result["ms_per_token_median"].is_null());
    assert_eq!(result["cache_dtype"], "f32");
    let greedy = tokens(&place);
    assert_eq!(greedy.len(), 6);
    for strategy in ["manual", "capture", "eager"] {
        let line = ["--prompt", "abc", "--max-tokens", "6", "--json", "r.json", "--strategy"];
        let done = generate(&place, &[&line[..], &[strategy]].concat()).good();
        assert!(done.out.contains(strategy), "{}", done.out);
        assert_eq!(tokens(&place), greedy, "{strategy}");
    }
}

#[test]
fn the_kv_cache_has_the_requested_type() {
    let place = Place::new();
    write_model(&place, 256);
    for (further, expected) in [
        (&["--cache-dtype", "bf16"][..], "bf16"),
        (&["--dtype", "bf16"], "bf16"),
        (&["--dtype", "bf16", "--cache-dtype", "f32"], "f32"),
    ] {
        let line = ["--prompt", "abc", "--max-tokens", "4", "--verify", "--json", "r.json"];
        generate(&place, &[&line[..], further].concat()).good();
        let result = json(&place.path("r.json"));
        assert_eq!(
            (&result["cache_dtype"], &result["verified_steps"]),
            (&expected.into(), &4.into())
        );
    }
    let done = generate(&place, &["--prompt", "abc", "--cache-dtype", "f16"]);
    assert!(done.err.contains("give f32 or bf16"), "{}", done.err);
}

#[test]
fn a_prompt_can_be_read_in_tf32x3() {
    let place = Place::new();
    write_model(&place, 256);
    let line = ["--prompt", "abc", "--max-tokens", "2", "--verify", "--f32-products", "tf32x3"];
    generate(&place, &line).good();
    generate(&place, &[&line[..], &["--dtype", "bf16"]].concat()).bad(&["--f32-products"]);
}

#[test]
fn samples_depend_on_the_seed_and_stop_strings_end_a_text() {
    let place = Place::new();
    write_model(&place, 256);
    let drawn = |further: &[&str]| {
        let line = ["--prompt", "abc", "--temperature", "2", "--quiet", "--json", "r.json"];
        generate(&place, &[&line[..], further].concat()).good()
    };
    let done = drawn(&["--seed", "1"]);
    // The context of the model ends the text: 32 positions, 3 of them for the prompt.
    assert_eq!(tokens(&place).len(), 29);
    let first = tokens(&place);
    let result = json(&place.path("r.json"));
    assert_eq!(done.out, format!("{}\n", result["text"].as_str().unwrap()), "text and no more");
    assert!(result["ended"].as_str().unwrap().contains("--max-length"), "{result}");
    drawn(&["--seed", "1"]);
    assert_eq!(tokens(&place), first);
    drawn(&["--seed", "2"]);
    assert_ne!(tokens(&place), first);

    let at = first.iter().position(|token| (32..127).contains(token)).expect("a letter");
    let stop = char::from(first[at] as u8).to_string();
    drawn(&["--seed", "1", "--stop", &stop]);
    assert_eq!(tokens(&place).len(), at + 1);
    assert_eq!(json(&place.path("r.json"))["ended"], "a stop string");

    // A token that ends texts, by the configuration of the model.
    let generation = format!("{{ \"eos_token_id\": {} }}", first[4]);
    std::fs::write(place.path("model/generation_config.json"), generation).unwrap();
    let end = first.iter().position(|&token| token == first[4]).unwrap();
    drawn(&["--seed", "1"]);
    assert_eq!(tokens(&place), first[..end]);
    drawn(&["--seed", "1", "--ignore-eos"]);
    assert_eq!(tokens(&place), first);
}

#[test]
fn an_adapter_changes_the_text() {
    let place = Place::new();
    write_model(&place, 256);
    let far = ["--lr", "0.5", "--warmup", "1", "--lora-targets", "all"];
    train(&place, &[&far[..], &["--steps", "20", "--adapter-out", "adapter"]].concat()).good();
    let drawn = ["--temperature", "0.02", "--max-tokens", "20", "--json", "r.json"];
    let line = [&["--prompt", "all work"], &drawn[..]].concat();
    generate(&place, &line).good();
    let base = tokens(&place);
    let done = generate(&place, &[&line[..], &["--adapter", "adapter", "--verify"]].concat());
    assert!(done.good().out.contains("lora of rank"));
    assert_ne!(tokens(&place), base);
}

#[test]
fn a_checkpoint_and_its_adapter_generate_the_same_text() {
    let place = Place::new();
    write_model(&place, 256);
    let far = ["--lr", "0.5", "--warmup", "1", "--lora-targets", "all", "--steps", "20"];
    let kept = ["--adapter-out", "adapter", "--checkpoint", "c", "--checkpoint-every", "10"];
    train(&place, &[&far[..], &kept].concat()).good();
    let line = ["--prompt", "all work", "--max-tokens", "12", "--verify", "--json", "r.json"];
    generate(&place, &[&line[..], &["--adapter", "adapter"]].concat()).good();
    let expected = tokens(&place);
    let done = generate(&place, &[&line[..], &["--checkpoint", "c"]].concat()).good();
    assert!(done.out.contains("step-00000020.safetensors"), "{}", done.out);
    assert_eq!(tokens(&place), expected);

    let bare = ["generate", "--checkpoint", "c", "--prompt", "a", "--device", "sim"];
    run(&place, &bare).bad(&["base model", "--checkpoint"]);
    generate(&place, &["--prompt", "a", "--checkpoint", "nowhere"]).bad(&["no checkpoint"]);
    for further in [["--adapter", "adapter"], ["--dtype", "bf16"]] {
        let line = [&["--prompt", "a", "--checkpoint", "c"], &further[..]].concat();
        assert_eq!(generate(&place, &line).code, Some(2), "{further:?}");
    }
}

#[test]
fn a_checkpoint_of_a_model_from_a_seed_needs_no_directory() {
    let place = Place::new();
    place.finetune(&["--steps", "30", "--mode", "full", "--checkpoint", "c"]).good();
    let line = ["generate", "--checkpoint", "c", "--prompt", "all work", "--device", "sim"];
    let further = ["--max-tokens", "9", "--verify", "--json", "r.json"];
    run(&place, &[&line[..], &further].concat()).good();
    let trained = tokens(&place);
    assert_eq!(
        (trained.len(), json(&place.path("r.json"))["verified_steps"].as_u64()),
        (9, Some(9))
    );
}

#[test]
fn requests_that_cannot_be_generated_are_refused() {
    let place = Place::new();
    write_model(&place, 256);
    generate(&place, &["--prompt", ""]).bad(&["no token"]);
    generate(&place, &["--prompt", &"a".repeat(32)]).bad(&["32 tokens"]);
    generate(&place, &["--prompt", "a", "--max-length", "33"]).bad(&["33 tokens", "32 positions"]);
    generate(&place, &["--prompt", "a", "--top-p", "2"]).bad(&["top_p is 2"]);
    generate(&place, &["--prompt-file", "nowhere"]).bad(&["nowhere", "prompt"]);
    std::fs::write(place.path("empty"), "").unwrap();
    generate(&place, &["--prompt-file", "empty"]).bad(&["prompt in `empty`", "no token"]);
    generate(&place, &["--prompt", "a", "--adapter", "nowhere"]).bad(&["nowhere"]);
    assert_eq!(generate(&place, &[]).code, Some(2));
}

#[test]
fn bench_decode_runs_on_the_simulated_driver() {
    let place = Place::new();
    let model = ["--layers", "1", "--hidden", "16", "--intermediate", "24", "--heads", "4"];
    let sizes = ["--decode", "9x32", "--steps", "3", "--warm-up", "2", "--json", "r.json"];
    let strategies = ["--strategies", "eager,manual", "--device", "sim", "--temperature", "1"];
    let line = [&["bench"], &model[..], &sizes[..], &strategies[..]].concat();
    let done = run(&place, &line).good();
    assert!(done.out.contains("SIMULATED"), "{}", done.out);
    let results = json(&place.path("r.json"));
    let of = |index: usize, field: &str| &results["measurements"][index][field];
    assert_eq!((of(0, "strategy"), of(1, "strategy")), (&"eager".into(), &"manual".into()));
    assert_eq!((of(0, "position"), of(0, "cache")), (&9.into(), &32.into()));
    assert_eq!(of(0, "last_tokens"), of(1, "last_tokens"));
    assert_eq!(of(1, "operations"), of(1, "nodes"));
    assert!(of(1, "planned_bytes").as_u64() > Some(0), "{results}");
    assert!(of(0, "token_ms_median").as_f64().is_some(), "{results}");
    let bench = |rest: &[&str]| {
        let line = [&["bench"], &model[..], &["--device", "sim", "--json", "r.json"], rest];
        run(&place, &line.concat())
    };
    // One token is measured, after the one of the prefill.
    let one = ["--decode", "4x6", "--steps", "1", "--warm-up", "0", "--strategies", "manual"];
    let done = bench(&[&one[..], &["--batch", "2", "--profile"]].concat()).good();
    assert!(done.out.contains("profile of `next tokens`"), "{}", done.out);
    let results = json(&place.path("r.json"));
    let one = &results["measurements"][0];
    assert!(one["token_ms_median"].as_f64() > Some(0.0), "{one}");
    assert_eq!(one["nodes"], one["profile"]["operations"].as_array().unwrap().len());
    assert!(!one["prefill_profile"]["operations"].as_array().unwrap().is_empty(), "{one}");
    let few = bench(&["--decode", "4x6", "--steps", "2", "--warm-up", "0"]);
    few.bad(&["is 6", "at least 7", "4 tokens of the prompt", "2 measured"]);
    bench(&["--decode", "9x9"]).bad(&["is 9", "9 tokens"]);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_text_and_keeps_its_beginning() {
    let place = Place::new();
    write_model(&place, 256);
    // Enough positions for a text that does not end during the test.
    let path = place.path("model/config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("32", "100000")).unwrap();
    let mut command = place.program();
    command.args(["generate", "--model", "model", "--device", "sim", "--prompt", "abc"]);
    command.args(["--max-tokens", "90000", "--temperature", "1", "--json", "r.json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = Vec::new();
    // `warm` begins the last fact before the text; further output is a piece of text.
    while !line.starts_with(b"warm") {
        line.clear();
        assert!(out.read_until(b'\n', &mut line).unwrap() > 0);
    }
    out.read_exact(&mut [0]).unwrap();
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.contains("interrupted"), "{rest}");
    assert!(!tokens(&place).is_empty());
}
