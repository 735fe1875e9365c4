//! Runs that are killed at a random time: the newest checkpoint is always complete, and a run that
//! resumes from it equals an uninterrupted run.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use retrograph_finetune::checkpoint::CheckpointDirectory;
use serde_json::{Value, json};

use crate::program::{Place, json};

const KILLS: usize = 24;
/// The end of the schedule, which no run of the test reaches.
const SCHEDULE: &str = "100000";

/// Random numbers that differ from run to run.
struct Random(u64);

impl Random {
    // The seed is printed so that a failure can be reproduced.
    #[allow(clippy::print_stdout)]
    fn new() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        println!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A run on examples with all outputs; a fifth of the examples is held out.
fn run(place: &Place, further: &[&str]) -> Command {
    let mut command = place.program();
    command.args(["finetune", "--data", "data", "--holdout", "0.2", "--eval-every", "3"]);
    command.args(["--layers", "1", "--hidden", "8", "--intermediate", "8", "--heads", "2"]);
    command.args(["--batch", "2", "--seq", "8", "--sample", "0", "--device", "sim"]);
    command.args(["--schedule-steps", SCHEDULE, "--cache-dir", "cache"]).args(further);
    command
}

fn checkpointed(place: &Place, further: &[&str]) -> Command {
    let mut command =
        run(place, &["--checkpoint", "dir", "--checkpoint-every", "1", "--metrics", "m"]);
    command.args(further);
    command
}

/// Waits until the run has written its own checkpoint, then for `more`, and kills it.
fn kill(mut child: Child, directory: &CheckpointDirectory, more: Duration) {
    let before = directory.latest().unwrap();
    let start = Instant::now();
    while directory.latest().unwrap() == before {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended on its own");
        assert!(start.elapsed() < Duration::from_secs(120), "the run does not get on");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(more);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_last_checkpoint_of_a_killed_run_loads_and_resumes() {
    let place = Place::new();
    let lines = (0..20).map(|i| json!({ "prompt": i.to_string(), "completion": "ab" }).to_string());
    std::fs::write(place.path("data"), lines.collect::<Vec<_>>().join("\n")).unwrap();
    let (mut random, mut done) = (Random::new(), 0);
    let directory = CheckpointDirectory::at(&place.path("dir"));
    for number in 0..KILLS {
        let resume: &[&str] = if done > 0 { &["--resume"] } else { &[] };
        let mut command = checkpointed(&place, &[&["--steps", SCHEDULE], resume].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if number % 4 == 3 {
            // Whatever it is at, even before its first step.
            std::thread::sleep(Duration::from_millis(random.below(1500)));
            let mut child = child;
            assert_eq!(child.try_wait().unwrap(), None, "the run ended on its own");
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            // While it trains and saves, at most some steps further.
            kill(child, &directory, Duration::from_micros(random.below(30_000)));
        }
        let checkpoint = directory.open_latest().unwrap();
        let header = checkpoint.header();
        assert!(header.next_step >= done, "{} after {done}", header.next_step);
        assert_eq!(header.losses.len(), header.next_step as usize);
        done = header.next_step;
    }
    assert!(done as usize >= KILLS / 2, "{done}");
    let until = (done + 3).to_string();
    let finished = |mut command: Command| {
        command.args(["--steps", &until, "--report", "r"]);
        crate::program::Done::from(command).good();
        json(&place.path("r"))
    };
    let killed = finished(checkpointed(&place, &["--resume"]));
    let expected = finished(run(&place, &[]));
    assert_eq!(killed["losses"], expected["losses"]);
    assert_eq!(killed["held_out"], expected["held_out"]);
    whole(&place, done + 3);
}

/// Checks that each step has one line of metrics and that no incomplete file is left.
fn whole(place: &Place, steps: u32) {
    let text = std::fs::read_to_string(place.path("m")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let all = lines.filter(|line| line["loss"].is_number()).map(|line| line["step"].as_u64());
    assert!(all.eq((0..u64::from(steps)).map(Some)), "{text}");
    let names = std::fs::read_dir(place.path("dir")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let names: Vec<_> = names.into_iter().filter(|name| name != ".lock").collect();
    assert_eq!(names.len(), 4, "{names:?}");
}
