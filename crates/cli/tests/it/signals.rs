//! Signals in each phase of a command.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::models::{train, write_model};
use crate::program::Place;

/// Time limit after a signal. A phase that ignores the signal takes longer, or ends with another
/// status. While other processes write to the same disk, an end has taken over ten seconds.
const PROMPT: Duration = Duration::from_secs(60);

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits for the end of the process within [`PROMPT`].
fn end(mut child: Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PROMPT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the program did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a command and waits for a line that begins with `word`.
fn until(mut command: Command, word: &str) -> (Child, impl BufRead) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = Vec::new();
    while !line.starts_with(word.as_bytes()) {
        line.clear();
        assert!(out.read_until(b'\n', &mut line).unwrap() > 0, "`{word}` was not printed");
    }
    (child, out)
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Returns the sorted names of the files in the folder.
fn files(place: &Place) -> Vec<String> {
    let names = std::fs::read_dir(place.path("")).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = names.map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

/// A report to a pipe without a reader waits for one, and then for a signal.
#[test]
fn a_signal_ends_the_wait_for_the_reader_of_a_pipe() {
    let place = Place::new();
    fifo(&place.path("pipe"));
    let command = place.command(&["--steps", "2", "--report", "pipe", "--sample", "0"]);
    let (child, out) = until(command, "loss");
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "-TERM");
    assert_eq!(end(child).code(), Some(1));
    drop(out);
}

#[test]
fn a_command_that_waits_for_its_data_ends_at_the_first_signal() {
    let place = Place::new();
    fifo(&place.path("pipe"));
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        for command in ["finetune", "eval"] {
            let mut started = place.program();
            started.args([command, "--text", "pipe", "--device", "sim"]);
            let child = started.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // Opening the other end succeeds when the program reads.
            let writer = std::fs::OpenOptions::new().write(true).open(place.path("pipe")).unwrap();
            send(&child, signal);
            assert_eq!(end(child).code(), Some(code), "{command} {signal}");
            drop(writer);
        }
    }
    assert_eq!(files(&place), ["pipe", "text"]);
}

#[test]
fn a_measurement_ends_at_the_first_signal() {
    let place = Place::new();
    let mut bench = place.program();
    bench.args(["bench", "--device", "sim", "--sizes", "64x256", "--json", "r"]);
    let (child, _out) = until(bench, "device");
    std::thread::sleep(Duration::from_millis(200));
    send(&child, "-TERM");
    assert_eq!(end(child).code(), Some(143));
    assert_eq!(files(&place), ["text"]);
}

#[test]
fn a_sample_ends_at_the_first_signal_and_the_weights_are_kept() {
    let place = Place::new();
    let line = ["--steps", "1", "--sample", "1000000", "--checkpoint", "dir"];
    let (child, _out) = until(place.command(&line), "checkpoint");
    send(&child, "-INT");
    assert_eq!(end(child).code(), Some(130));
    assert!(place.path("dir/latest").exists());
}

#[test]
fn a_terminated_run_keeps_its_state_and_exits_with_the_signal() {
    let place = Place::new();
    let line = ["--steps", "100000", "--checkpoint", "dir"];
    let (child, mut out) = until(place.command(&line), "train");
    send(&child, "-TERM");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(end(child).code(), Some(143), "{rest}");
    assert!(place.path("dir/latest").exists());
}

#[test]
fn a_long_prompt_ends_at_the_first_signal() {
    let place = Place::new();
    write_model(&place, 256);
    let path = place.path("model/config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("32", "100000")).unwrap();
    std::fs::write(place.path("prompt"), "abc ".repeat(20_000)).unwrap();
    let mut generate = place.program();
    generate.args(["generate", "--model", "model", "--device", "sim", "--prompt-file", "prompt"]);
    let (child, _out) = until(generate, "warm");
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "-INT");
    assert_eq!(end(child).code(), Some(130));
}

#[test]
fn a_merge_ends_at_the_first_signal_and_leaves_nothing() {
    let place = Place::new();
    write_model(&place, 256);
    train(&place, &["--steps", "1", "--adapter-out", "adapter"]).good();
    // A large embedding table takes long; the adapter changes only later tensors.
    std::fs::remove_dir_all(place.path("model")).unwrap();
    write_model(&place, 1 << 22);
    let before = files(&place);
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut merge = place.program();
        merge.args(["merge", "--model", "model", "--adapter", "adapter", "--out", "out"]);
        let child = merge.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while files(&place) == before {
            assert!(started.elapsed() < PROMPT, "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        send(&child, signal);
        assert_eq!(end(child).code(), Some(code), "{signal}");
        assert_eq!(files(&place), before);
    }
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let place = Place::new();
    // Steps that take seconds, so that the first signal alone would take as long.
    let mut slow = place.program();
    slow.args(["finetune", "--text", "text", "--device", "sim", "--batch", "64", "--seq", "256"]);
    slow.args(["--layers", "8", "--checkpoint", "dir"]);
    std::fs::write(place.path("text"), "all work and no play. ".repeat(2000)).unwrap();
    let (child, _out) = until(slow, "strategy");
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "-INT");
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "-INT");
    let started = Instant::now();
    assert_eq!(end(child).code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(!place.path("dir/latest").exists());
}
