//! Runs on several devices, started by the program or by a launcher. Each process has a simulated
//! device.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use retrograph_finetune::checkpoint::CheckpointDirectory;

use crate::program::{Done, Place, json};

/// Time in which the other processes must end after one has failed.
const SOON: Duration = Duration::from_secs(10);
const ENDLESS: [&str; 6] = ["--steps", "100000", "--checkpoint", "dir", "--checkpoint-every", "2"];

fn losses(place: &Place, name: &str) -> serde_json::Value {
    json(&place.path(name))["losses"].clone()
}

/// Starts a rank as torchrun does.
fn torchrun(place: &Place, [rank, count]: [usize; 2], port: u16, further: &[&str]) -> Command {
    let mut command = place.command(&[&["--batch", "4"], further].concat());
    let variables = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", count.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("LOCAL_WORLD_SIZE", count.to_string()),
        ("MASTER_ADDR", "localhost".to_owned()),
        ("MASTER_PORT", port.to_string()),
    ];
    command.envs(variables);
    command
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The processes that a launcher has started, in the order of their ranks.
fn ranks_of(launcher: &Child) -> Vec<String> {
    let parent = launcher.id().to_string();
    let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &parent]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.split_whitespace().map(str::to_owned).collect()
}

fn signal(process: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

/// Waits for a checkpoint after `steps` steps.
fn wait_for(directory: &CheckpointDirectory, steps: u32, launcher: &mut Child) {
    let since = Instant::now();
    loop {
        let latest = directory.latest().ok().flatten();
        let name = latest.and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        let done = name.and_then(|name| name.strip_prefix("step-")?.parse::<u32>().ok());
        if done.is_some_and(|done| done >= steps) {
            return;
        }
        assert_eq!(launcher.try_wait().unwrap(), None, "the run ended by itself");
        assert!(since.elapsed() < Duration::from_secs(120), "the run does not get on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn several_processes_learn_the_same_as_one_and_only_rank_0_writes() {
    let place = Place::new();
    let line = ["--batch", "4", "--steps", "5"];
    place.finetune(&[&line[..], &["--report", "one"]].concat()).good();
    let outputs = [
        "--report",
        "two",
        "--checkpoint",
        "dir",
        "--metrics",
        "m",
        "--plot",
        "p.svg",
        "--graph",
        "g.svg",
        "--profile",
        "profile",
        "--profile-replays",
        "1",
        "--model-out",
        "model",
    ];
    let done = place.finetune(&[&line[..], &["--gpus", "2"], &outputs].concat()).good();
    assert!(done.out.contains("2 processes, started by --gpus"), "{}", done.out);
    assert!(done.out.contains(" tokens, 2 on each of 2 devices, "), "{}", done.out);
    assert_eq!(done.out.matches("step     1 of 5").count(), 1, "{}", done.out);
    assert_eq!(done.err, "");
    for (found, expected) in losses(&place, "two")
        .as_array()
        .unwrap()
        .iter()
        .zip(losses(&place, "one").as_array().unwrap())
    {
        let [found, expected] = [found, expected].map(|loss| loss.as_f64().unwrap());
        assert!((found - expected).abs() < 1e-5 * expected, "{found} {expected}");
    }
    let report = json(&place.path("two"));
    assert_eq!(report["ranks"], 2);
    assert!(report["collectives"]["operations"].as_u64().unwrap() > 0, "{report}");
    assert!(report["collectives"]["bytes"].as_u64().unwrap() > 0, "{report}");
    let metrics = std::fs::read_to_string(place.path("m")).unwrap();
    assert_eq!(metrics.lines().count(), 5, "{metrics}");
    let graph = std::fs::read_to_string(place.path("g.svg")).unwrap();
    assert!(graph.contains("collectives between devices"));
    assert!(place.path("model/model.safetensors").exists());
}

#[test]
fn a_run_of_all_weights_continues_on_another_number_of_devices() {
    let place = Place::new();
    let run = |further: &[&str]| {
        let line = ["--batch", "4", "--dtype", "bf16", "--checkpoint", "dir", "--report", "r"];
        place.finetune(&[&line[..], &["--schedule-steps", "9"], further].concat()).good();
        losses(&place, "r").as_array().unwrap().len()
    };
    assert_eq!(run(&["--gpus", "2", "--steps", "3"]), 3);
    assert_eq!(run(&["--gpus", "4", "--steps", "5", "--resume"]), 5);
    assert_eq!(run(&["--steps", "7", "--resume"]), 7);
    assert_eq!(run(&["--gpus", "2", "--steps", "9", "--resume"]), 9);
}

#[test]
fn a_killed_process_ends_the_others_which_name_it() {
    for victim in 0..3 {
        let place = Place::new();
        let line = [&["--batch", "6", "--gpus", "3"], &ENDLESS[..]].concat();
        let mut command = place.command(&line);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let directory = CheckpointDirectory::at(&place.path("dir"));
        wait_for(&directory, 2, &mut launcher);
        let ranks = ranks_of(&launcher);
        assert_eq!(ranks.len(), 3);
        let since = Instant::now();
        signal(&ranks[victim], "-KILL");
        let done = launcher.wait_with_output().unwrap();
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{errors}");
        let named = format!("error: rank {victim} failed: its process was killed by signal 9");
        assert_eq!(errors.matches(&named).count(), 1, "{errors}");
        let left = Command::new("kill").arg("-0").args(&ranks).stderr(Stdio::null()).status();
        assert!(!left.unwrap().success(), "a process is left");
        directory.open_latest().unwrap();
    }
}

/// A stopped process simulates a host that lost power: neither sends anything.
#[test]
fn a_silent_process_ends_the_others() {
    let place = Place::new();
    let line = [&["--batch", "4", "--gpus", "2"], &ENDLESS[..]].concat();
    let mut command = place.command(&line);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    wait_for(&CheckpointDirectory::at(&place.path("dir")), 2, &mut launcher);
    let ranks = ranks_of(&launcher);
    let since = Instant::now();
    signal(&ranks[1], "-STOP");
    let done = launcher.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(errors.contains("rank 1 failed: it sent nothing for 8 s"), "{errors}");
    // It is killed as soon as it has been silent for 8 s; nobody waits for it to end by itself.
    assert!(since.elapsed() < Duration::from_secs(8) + SOON, "{:?}", since.elapsed());
}

#[test]
fn a_signal_to_the_launcher_or_to_a_rank_stops_all_ranks() {
    for to_launcher in [true, false] {
        let place = Place::new();
        let line = [&["--batch", "4", "--gpus", "2"], &ENDLESS[..]].concat();
        let mut command = place.command(&line);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let directory = CheckpointDirectory::at(&place.path("dir"));
        wait_for(&directory, 2, &mut launcher);
        match to_launcher {
            true => signal(&launcher.id().to_string(), "-TERM"),
            false => signal(&ranks_of(&launcher)[1], "-TERM"),
        }
        let done = launcher.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((done.status.code(), errors.as_str()), (Some(143), ""));
        let checkpoint = directory.open_latest().unwrap();
        assert_eq!(checkpoint.header().losses.len(), checkpoint.header().next_step as usize);
    }
}

#[test]
fn processes_of_torchrun_find_each_other() {
    let place = Place::new();
    let port = free_port();
    let line = ["--steps", "4", "--report", "r"];
    let other = torchrun(&place, [1, 2], port, &line).stdout(Stdio::piped()).spawn().unwrap();
    let first = Done::from(torchrun(&place, [0, 2], port, &line)).good();
    assert!(first.out.contains("2 processes, started by torchrun"), "{}", first.out);
    let other = other.wait_with_output().unwrap();
    assert_eq!((other.status.code(), other.stdout.len()), (Some(0), 0), "one of them prints");
    place.finetune(&["--batch", "4", "--steps", "4", "--report", "one"]).good();
    assert_eq!(losses(&place, "r").as_array().unwrap().len(), 4);
    assert_eq!(losses(&place, "one").as_array().unwrap().len(), 4);
}

#[test]
fn processes_with_other_options_do_not_train_together() {
    let place = Place::new();
    let port = free_port();
    let mut first = torchrun(&place, [0, 2], port, &["--seed", "1"]);
    let first = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let other = Done::from(torchrun(&place, [1, 2], port, &["--seed", "2"]));
    let first = first.wait_with_output().unwrap();
    let texts = [other.err, String::from_utf8_lossy(&first.stderr).into_owned()];
    // On a slow machine, the notice of a waiting rank may come first.
    assert!(texts.iter().all(|text| text.contains("error: ")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("`  \"seed\": ")), "{texts:?}");
}

#[test]
fn errors_are_printed_once_and_name_a_remedy() {
    let place = Place::new();
    let refused = |further: &[&str], words: &[&str]| {
        let done = place.finetune(further).bad(words);
        assert_eq!(done.err.matches("error: ").count(), 1, "{}", done.err);
    };
    refused(
        &["--gpus", "3", "--batch", "4"],
        &["--batch is 4", "multiple of the number of GPUs, 3"],
    );
    refused(&["--gpus", "2", "--text", "missing"], &["missing"]);
    refused(&["--gpus", "2", "--nccl", "/none.so"], &["NCCL cannot be read from `/none.so`: "]);
    refused(&["--nccl", "/none.so"], &["NCCL cannot be read from `/none.so`: "]);
    refused(&["--gpus", "2", "--strategy", "manual"], &["--strategy manual", "leave it out"]);
    let mut both = torchrun(&place, [0, 2], 1, &["--gpus", "2"]);
    both.env_remove("RETROGRAPH_COORDINATOR");
    Done::from(both).bad(&["--gpus 2 starts processes, but torchrun has started 2 already"]);
}
