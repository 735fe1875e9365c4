//! Standard output that is full or closed, pipes instead of files, and names with control
//! characters.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

use crate::models::{run, write_model};
use crate::program::{Done, Place};

/// The results of a command that cannot print.
fn on_full(place: &Place, arguments: &[&str]) -> Done {
    let mut command = place.program();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.args(arguments).stdout(full).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Done { code: output.status.code(), out: String::new(), err }
}

#[test]
fn output_that_is_lost_is_an_error() {
    let place = Place::new();
    write_model(&place, 256);
    let small = ["--device", "sim", "--layers", "1", "--hidden", "16", "--heads", "2"];
    let bench = ["bench", "--sizes", "1x8", "--steps", "1", "--strategies", "eager"];
    for line in [
        &["inspect", "--model", "model", "--seq", "8"][..],
        &[&["eval", "--text", "text", "--seq", "8"], &small[..]].concat(),
        &[&bench[..], &small].concat(),
        &["generate", "--model", "model", "--prompt", "a", "--max-tokens", "3", "--device", "sim"],
    ] {
        on_full(&place, line).bad(&["standard output", "No space left"]);
    }
    let train = ["finetune", "--text", "text", "--steps", "2", "--seq", "8", "--sample", "0"];
    let keep = ["--checkpoint", "dir"];
    let done = on_full(&place, &[&train[..], &keep, &small].concat());
    done.bad(&["standard output", "No space left"]);
    assert!(place.path("dir/latest").exists(), "the run goes on");
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let place = Place::new();
    write_model(&place, 256);
    let shell = |line: &str| {
        let mut command = Command::new("bash");
        // The reader is gone before the first line.
        let line = format!("{line} > >(exec <&-; touch gone)");
        command.current_dir(place.path("")).args(["-c", &line]);
        command.env("R", env!("CARGO_BIN_EXE_retrograph"));
        Done::from(command)
    };
    let wait = "while [ ! -e gone ]; do sleep 0.01; done";
    let inspect = shell(&format!("{{ {wait}; exec \"$R\" inspect --model model --seq 8; }}"));
    assert_eq!((inspect.code, inspect.err.as_str()), (Some(141), ""));
    fs::remove_file(place.path("gone")).unwrap();
    let line = "finetune --text text --device sim --layers 1 --steps 2 --seq 8 --sample 0";
    let train = shell(&format!("{{ {wait}; exec \"$R\" {line} --checkpoint dir; }}"));
    assert_eq!(train.code, Some(0), "{}", train.err);
    assert!(place.path("dir/latest").exists());
}

#[test]
fn a_text_and_a_prompt_may_come_through_a_pipe() {
    let place = Place::new();
    write_model(&place, 256);
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let through = |line: &[&str]| {
        let mut command = place.program();
        let child = command.args(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut writer = OpenOptions::new().write(true).open(&pipe).unwrap();
        writer.write_all("all work and no play. ".as_bytes()).unwrap();
        drop(writer);
        let output = child.unwrap().wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Done { code: output.status.code(), out: String::new(), err }.good();
    };
    through(&["eval", "--model", "model", "--text", "pipe", "--seq", "8", "--device", "sim"]);
    through(&[
        "generate",
        "--model",
        "model",
        "--prompt-file",
        "pipe",
        "--max-tokens",
        "2",
        "--device",
        "sim",
    ]);
}

#[test]
fn a_prompt_without_end_is_refused() {
    let place = Place::new();
    write_model(&place, 256);
    let line = ["generate", "--model", "model", "--prompt-file", "/dev/zero", "--device", "sim"];
    run(&place, &line).bad(&["the prompt", "/dev/zero", "more than 268435456 bytes"]);
}

#[test]
fn a_text_without_end_is_refused_by_its_size() {
    let place = Place::new();
    // The file takes no space on the disk.
    fs::File::create(place.path("huge")).unwrap().set_len(1 << 40).unwrap();
    let limit = "1099511627776 bytes exceed the limit of 1073741824 tokens";
    for command in ["eval", "finetune"] {
        let line = [command, "--text", "huge", "--device", "sim"];
        let done = run(&place, &[&line[..], &["--token-cache", "none"]].concat()).bad(&[limit]);
        assert!(!done.out.contains("device"), "{}", done.out);
        let space = "the tokens of `huge` take about 4398046511104 bytes, but the file system of";
        let done = run(&place, &[&line[..], &["--token-cache", "tokens"]].concat())
            .bad(&[space, "--token-cache none"]);
        assert!(!done.out.contains("device"), "{}", done.out);
    }
}

#[test]
fn a_line_of_data_without_end_is_refused() {
    let place = Place::new();
    for command in ["eval", "finetune"] {
        let line = [command, "--data", "/dev/zero", "--device", "sim"];
        run(&place, &line).bad(&["line 1 of `/dev/zero` has more than 67108864 bytes"]);
    }
}

/// Nobody asked for the default token cache.
#[test]
fn tokens_that_do_not_fit_the_default_cache_stay_in_memory() {
    let place = Place::new();
    fs::File::create(place.path("huge")).unwrap().set_len(1 << 40).unwrap();
    let mut command = place.program();
    command.env("XDG_CACHE_HOME", place.path("cache"));
    command.args(["finetune", "--text", "huge", "--device", "sim"]);
    let done = Done::from(command).bad(&["exceed the limit of 1073741824 tokens"]);
    assert!(done.out.contains("tokens      in memory: the tokens of `huge`"), "{}", done.out);
}

/// The output of `retrograph generate` for random text, to a pipe or to a terminal.
fn generated(place: &Place, seed: u32, terminal: bool) -> String {
    let line = format!(
        "{} generate --model model --device sim --prompt a --quiet --temperature 1 --seed {seed}",
        env!("CARGO_BIN_EXE_retrograph")
    );
    // A closing terminal sends extra characters, so standard input stays open.
    let mut command = if terminal { Command::new("script") } else { Command::new("sh") };
    command.args(if terminal { vec!["-qec", &line, "/dev/null"] } else { vec!["-c", &line] });
    command.current_dir(place.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn control_characters_of_generated_text_do_not_reach_a_terminal() {
    let place = Place::new();
    write_model(&place, 256);
    let obeyed = |one: char| one.is_control() && !"\n\t".contains(one);
    let piped = |seed| (seed, generated(&place, seed, false));
    let with_control = (0..20).map(piped).find(|(_, text)| text.contains(obeyed));
    let (seed, text) = with_control.expect("a random text has control characters");
    // Terminals end lines with two characters.
    let shown = generated(&place, seed, true).replace("\r\n", "\n");
    assert_eq!(shown, text.replace(obeyed, ""));
    // The sample of a run is generated text, too.
    let sample = ["--sample", "200", "--temperature", "9", "--steps", "1"];
    let done = place.finetune(&sample).good();
    assert!(done.out.contains(obeyed) && !done.out.contains("\\u{"), "{}", done.out);
}

#[test]
fn control_characters_in_model_files_are_escaped() {
    let place = Place::new();
    write_model(&place, 256);
    let path = place.path("model/config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("\"llama\"", r#""ll\u001b[2Jama""#)).unwrap();
    let done = run(&place, &["inspect", "--model", "model"]).bad(&[r"ll\u{1b}[2Jama"]);
    assert!(!done.err.contains('\u{1b}'), "{}", done.err);
    let train = ["--steps", "1", "--mode", "lora", "--adapter-out", "adapter"];
    place.finetune(&train).good();
    let path = place.path("adapter/adapter_config.json");
    let config = fs::read_to_string(&path).unwrap();
    let named = config.replace(
        r#""base_model_name_or_path":null"#,
        r#""base_model_name_or_path":"\u001b]0;title\u0007""#,
    );
    let named = named.replace(
        r#""base_model_name_or_path": null"#,
        r#""base_model_name_or_path": "\u001b]0;title\u0007""#,
    );
    assert_ne!(named, config);
    fs::write(&path, named).unwrap();
    let done = place.finetune(&["--steps", "1", "--adapter", "adapter"]).good();
    assert!(done.out.contains(r"\u{1b}]0;title\u{7}"), "{}", done.out);
    assert!(!done.out.contains('\u{1b}'), "{}", done.out);
}

#[test]
fn a_link_to_standard_output_is_written_and_not_replaced() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    symlink("/proc/self/fd/1", place.path("out")).unwrap();
    let is_link = || place.path("out").is_symlink();
    let train = ["--steps", "1", "--sample", "0"];
    for (option, words) in [("--report", "\"losses\": ["), ("--plot", "<svg"), ("--dot", "digraph")]
    {
        let done = place.finetune(&[&train[..], &[option, "out"]].concat()).good();
        assert!(done.out.contains(words) && is_link(), "{option}: {}", done.out);
        // A file keeps all that is printed.
        let file = fs::File::create(place.path("printed")).unwrap();
        let mut command = place.command(&[&train[..], &[option, "out"]].concat());
        assert!(command.stdout(file).status().unwrap().success());
        let printed = fs::read_to_string(place.path("printed")).unwrap();
        assert!(printed.contains(words) && printed.contains("train "), "{option}: {printed}");
        assert!(is_link());
    }
    symlink("new", place.path("link")).unwrap();
    place.finetune(&[&train[..], &["--report", "link"]].concat()).good();
    assert!(place.path("link").is_symlink() && place.path("new").is_file());
    let line = "finetune --text text --device sim --layers 1 --steps 1 --seq 8 --sample 0";
    let mut command = Command::new("bash");
    let line = format!("\"$R\" {line} --discard --report >(cat > got; touch done)");
    command.current_dir(place.path("")).args(["-c", &line]);
    command.env("R", env!("CARGO_BIN_EXE_retrograph"));
    Done::from(command).good();
    while !place.path("done").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(fs::read_to_string(place.path("got")).unwrap().contains("\"losses\""));
}

#[test]
fn a_file_above_the_size_limit_is_reported_like_a_full_disk() {
    let place = Place::new();
    let line = "finetune --text text --device sim --layers 1 --hidden 16 --heads 2 --steps 2";
    let line = format!("ulimit -f 16; exec \"$0\" {line} --seq 8 --sample 0 --checkpoint c");
    let mut command = Command::new("sh");
    command.current_dir(place.path("")).args(["-c", &line, env!("CARGO_BIN_EXE_retrograph")]);
    Done::from(command).bad(&["the checkpoint", "File too large"]);
}
