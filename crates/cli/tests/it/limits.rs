//! Sizes above the limits of the kernels: errors name them before memory is allocated.

use std::fs;
use std::process::Command;

use crate::models::{run, write_model};
use crate::program::{Done, Place};

const HUGE: [&str; 3] = ["2147483648", "4294967296", "18446744073709551615"];

/// Runs the program with 2 GiB of address space, so that an allocation of a huge size fails.
fn limited(place: &Place, arguments: &[&str]) -> Done {
    let mut command = Command::new("sh");
    command.current_dir(place.path("")).args(["-c", "ulimit -v 2097152; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_retrograph")).args(arguments);
    command.into()
}

#[test]
fn a_dimension_above_its_limit_is_named() {
    let place = Place::new();
    for command in [&["finetune", "--text", "text"][..], &["eval", "--text", "text"], &["bench"]] {
        for (flag, name) in [
            ("--layers", "layers"),
            ("--hidden", "hidden"),
            ("--intermediate", "intermediate"),
            ("--heads", "heads"),
            ("--vocab", "vocab"),
        ] {
            let line = [command, &["--device", "sim", flag, HUGE[0]]].concat();
            limited(&place, &line).bad(&[&format!("{name} is {}, but", HUGE[0]), "from 1 to"]);
        }
    }
    for (flag, name) in [("--batch", "batch"), ("--seq", "seq"), ("--rank", "rank")] {
        for value in &HUGE[1..] {
            let line = ["finetune", "--text", "text", "--device", "sim", "--mode", "lora"];
            let done = limited(&place, &[&line[..], &[flag, value]].concat());
            done.bad(&[&format!("{name} is {value}, but"), "from 1 to"]);
        }
    }
}

#[test]
fn a_bench_size_above_its_limit_is_named() {
    let place = Place::new();
    let bench = |sizes: &[&str]| limited(&place, &[&["bench", "--device", "sim"], sizes].concat());
    bench(&["--sizes", "18446744073709551615x8"]).bad(&["batch is 18446744073709551615"]);
    bench(&["--sizes", "8x18446744073709551615"]).bad(&["seq is 18446744073709551615"]);
    bench(&["--decode", "1x18446744073709551615"]).bad(&["max_length is 18446744073709551615"]);
    bench(&["--decode", "18446744073709551615x32"]).bad(&["18446744073709551615 tokens", "32"]);
}

#[test]
fn a_number_of_only_the_command_line_is_refused_by_the_parser() {
    let place = Place::new();
    let train = ["finetune", "--text", "text", "--device", "sim"];
    for (command, flag) in [
        (&train[..], "--sample"),
        (&[&train[..], &["--profile", "p"]].concat(), "--profile-replays"),
        (&train, "--compile-workers"),
        (&["bench"], "--warm-up"),
        (&["bench"], "--steps"),
        (&["generate", "--model", "m", "--prompt", "x"], "--max-tokens"),
    ] {
        let done = limited(&place, &[command, &[flag, "18446744073709551615"]].concat());
        assert_eq!(done.code, Some(2), "{flag}: {}", done.err);
        assert!(done.err.contains(flag) && done.err.contains("is not in"), "{}", done.err);
    }
}

#[test]
fn a_model_with_too_many_layers_is_refused_from_every_source() {
    let place = Place::new();
    write_model(&place, 256);
    let train = ["--steps", "1", "--mode", "lora", "--adapter-out", "adapter"];
    place.finetune(&[&train[..], &["--checkpoint", "run"]].concat()).good();
    let line = ["--adapter", "adapter", "--layers", HUGE[0], "--device", "sim"];
    limited(&place, &[&["eval", "--text", "text"], &line[..]].concat()).bad(&["layers is"]);
    limited(&place, &[&["finetune", "--text", "text"], &line[..]].concat()).bad(&["layers is"]);

    let name = fs::read_to_string(place.path("run/latest")).unwrap();
    let file = place.path("run").join(name.trim());
    let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    assert!(text.contains(r#"\"layers\":1,"#), "{}", &text[..600]);
    let mut bytes = fs::read(&file).unwrap();
    let layers = br#"\"layers\":1,"#;
    let at = bytes.windows(layers.len()).position(|window| window == layers).unwrap();
    bytes.splice(at + layers.len() - 2..at + layers.len() - 1, HUGE[0].bytes());
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + HUGE[0].len() as u64 - 1;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    for command in [&["eval", "--text", "text"][..], &["generate", "--prompt", "x"]] {
        let line = [command, &["--checkpoint", "run", "--device", "sim"]].concat();
        limited(&place, &line).bad(&["run/step-", "layers is 2147483648"]);
    }

    let path = place.path("model/config.json");
    let config = fs::read_to_string(&path).unwrap();
    let layers = format!(r#""num_hidden_layers":{}"#, HUGE[0]);
    fs::write(&path, config.replace(r#""num_hidden_layers":1"#, &layers)).unwrap();
    for command in [
        &["inspect", "--model", "model"][..],
        &["generate", "--model", "model", "--prompt", "x"],
        &["eval", "--model", "model", "--text", "text"],
    ] {
        limited(&place, command).bad(&["layers is 2147483648", "from 1 to 512"]);
    }
}

#[test]
fn a_text_longer_than_the_context_gets_no_hint_about_seq() {
    let place = Place::new();
    write_model(&place, 256);
    let line = ["generate", "--model", "model", "--device", "sim", "--prompt", "x"];
    let long = |length: &str| run(&place, &[&line[..], &["--max-length", length]].concat());
    let done = long("4000000").bad(&["4000000 tokens", "32 positions"]);
    assert!(!done.err.contains("--seq"), "{}", done.err);
    long("18446744073709551615").bad(&["max_length is 18446744073709551615"]);
}

#[test]
fn a_directory_without_a_checkpoint_gets_no_hint_about_resume() {
    let place = Place::new();
    for command in [&["eval", "--text", "text"][..], &["generate", "--prompt", "x"]] {
        let line = [command, &["--checkpoint", "none", "--device", "sim"]].concat();
        let done = run(&place, &line).bad(&["no checkpoint in `none`"]);
        assert!(!done.err.contains("--resume"), "{}", done.err);
    }
}
