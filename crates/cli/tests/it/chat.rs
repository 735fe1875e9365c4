//! Conversations on the command line, from a script of lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::models::{run, train, write_chat_model, write_model};
use crate::program::{Done, Place};

fn command(place: &Place, model: &str, further: &[&str]) -> Command {
    let mut command = place.program();
    command.args(["chat", "--model", model, "--device", "sim"]).args(further);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `retrograph chat` on the given lines.
fn chat(place: &Place, model: &str, further: &[&str], lines: &[&str]) -> Done {
    let further = [further, &["--max-tokens", "8"]].concat();
    let mut child = command(place, model, &further).spawn().unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    // The program may have ended before it read everything.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A place with a model, an adapter that changes it, and both merged.
fn place() -> Place {
    let place = Place::new();
    write_chat_model(&place, 256);
    let steps = ["--steps", "20", "--lr", "0.5", "--warmup", "1", "--lora-targets", "all"];
    let out = ["--adapter-out", "adapter", "--model-out", "merged", "--model-dtype", "f32"];
    train(&place, &[&steps[..], &out].concat()).good();
    place
}

const DRAWN: [&str; 5] = ["--temperature", "0.02", "--seed", "3", "--quiet"];

#[test]
fn answers_equal_generate_on_the_rendered_conversation() {
    let place = place();
    let lines = ["the cat", "the cat", "/reset", "the cat", "/exit", "not read"];
    let done = chat(&place, "model", &DRAWN, &lines).good();
    let prompt = "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n";
    let line = ["generate", "--model", "model", "--device", "sim", "--max-tokens", "8"];
    let generate = [&line[..], &["--prompt", prompt], &DRAWN[..]].concat();
    let first = run(&place, &generate).good().out;
    // The second answer depends on the first exchange; the third starts again.
    assert!(done.out.starts_with(&first) && done.out.ends_with(&first), "{}", done.out);
    assert_ne!(done.out, first.repeat(3));
    assert!(done.out.len() > 2 * first.len(), "three answers: {}", done.out);
}

#[test]
fn an_adapter_is_switched_off_and_on() {
    let place = place();
    let ask = |model: &str, adapter: &[&str], lines: &[&str]| {
        chat(&place, model, &[&DRAWN[..], adapter].concat(), lines).good().out
    };
    let plain = ask("model", &[], &["the cat"]);
    let merged = ask("merged", &[], &["the cat"]);
    assert_ne!(plain, merged);
    let lines =
        ["the cat", "/reset", "/adapter off", "the cat", "/reset", "/adapter on", "the cat"];
    let switched = ask("model", &["--adapter", "adapter"], &lines);
    assert_eq!(switched, [merged.as_str(), &plain, &merged].concat());
}

#[test]
fn errors_are_reported_and_the_conversation_continues() {
    let place = Place::new();
    write_chat_model(&place, 64);
    let long = "0123456789".repeat(9);
    let lines = [long.as_str(), "/adapter on", "/rest", "", "the cat"];
    let done = chat(&place, "model", &["--system", "s", "--greedy"], &lines).good();
    for words in
        ["and the context 64", "there is no adapter", "no command /rest", "SIMULATED", "/reset"]
    {
        assert!(done.out.contains(words), "`{words}` is not in: {}", done.out);
    }
    let plain = Place::new();
    crate::models::write_model(&plain, 256);
    chat(&plain, "model", &[], &["hi"]).bad(&["no chat template"]);
    chat(&place, "model", &["--adapter", "absent"], &["hi"]).bad(&["absent/adapter_config.json"]);
}

/// An answer arrives before the next line is read.
#[test]
fn answers_arrive_before_the_next_message() {
    let place = Place::new();
    write_chat_model(&place, 64);
    let mut child = command(&place, "model", &["--quiet", "--greedy"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    writeln!(input, "hi").unwrap();
    let mut answer = String::new();
    output.read_line(&mut answer).unwrap();
    assert!(answer.len() > 1, "{answer:?}");
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Ctrl-C ends an answer and the conversation continues; SIGTERM ends the program.
#[cfg(unix)]
#[test]
fn a_signal_during_an_answer_ends_it() {
    use std::io::Read;

    for (signal, code) in [("-INT", 0), ("-TERM", 143)] {
        let place = Place::new();
        write_chat_model(&place, 4000);
        let further = ["--quiet", "--greedy", "--max-tokens", "3000"];
        let mut child = command(&place, "model", &further).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        writeln!(input, "hi").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let mut rest = Vec::new();
        drop(input);
        output.read_to_end(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert!(rest.ends_with(b"\n") && rest.len() < 3000, "{} bytes", rest.len());
    }
}

#[test]
fn a_model_that_cannot_chat_is_refused_before_a_device_is_opened() {
    let place = Place::new();
    write_model(&place, 256);
    let done = chat(&place, "model", &[], &[]).bad(&["no chat template"]);
    assert!(!done.out.contains("device"), "{}", done.out);
    let place = Place::new();
    write_chat_model(&place, 256);
    let done = chat(&place, "model", &["--temperature=-1"], &[]).bad(&["temperature is -1"]);
    assert!(!done.out.contains("device"), "{}", done.out);
}
