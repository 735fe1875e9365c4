//! Recording of scenarios, each in its own process so that failures stay isolated.

mod child;
mod devices;
mod head;
mod vectors;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use child::child;
pub use head::describe;
pub use vectors::{RecordedVectors, record_vectors};

use crate::scenario::{Library, Scenario};
use crate::trace::{Head, Trace, TraceFile};

/// The time limit of a scenario. While 28 processes run, creation and destruction of the contexts
/// of two devices take more than 10 s.
const LIMIT: Duration = Duration::from_secs(60);

/// The scenarios to record, and the output.
#[derive(Clone, Debug)]
pub struct Recording {
    /// A program that runs [`child`], and its first arguments.
    pub program: Vec<OsString>,
    /// Scenarios to run.
    pub scenarios: PathBuf,
    /// The output folder. Traces of other scenarios stay.
    pub out: PathBuf,
    /// Number of concurrent processes.
    pub jobs: usize,
    /// Text that names must contain.
    pub filter: String,
    /// Records only scenarios without a trace of their current steps.
    pub only_missing: bool,
}

/// The result of a recording.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Scenarios with a trace.
    pub traces: usize,
    /// Steps in them.
    pub steps: usize,
    /// Names of scenarios that crashed or hung, with the outcome.
    pub cut_short: Vec<(String, String)>,
    /// Names of scenarios that need more devices than the machine has. They were not recorded.
    pub skipped: Vec<String>,
    /// Errors in scenarios.
    pub mistakes: Vec<String>,
}

/// Records scenarios. Calls `progress` with the name of each finished scenario and the numbers of
/// finished and of all scenarios. Writes the trace file after each scenario, so an interrupted
/// recording keeps its results.
pub fn record(
    recording: &Recording,
    progress: &(dyn Fn(&str, usize, usize) + Sync),
) -> io::Result<Recorded> {
    let library = Library::load(&recording.scenarios);
    let devices = count_devices(&recording.program);
    let wanted = library
        .matching(&recording.filter)
        .filter(|scenario| !recording.only_missing || !has_trace(scenario, &recording.out));
    let (wanted, skipped): (Vec<&Scenario>, Vec<&Scenario>) =
        wanted.partition(|scenario| scenario.devices() < 2 || scenario.devices() <= devices);
    let head = Head { lines: run_child(&recording.program, &["describe".as_ref()], LIMIT).lines };
    let book = Book { recording, library: &library, head, pages: Mutex::default() };
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..recording.jobs.max(1) {
            scope.spawn(|| {
                while let Some(scenario) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run_one(recording, scenario);
                    if let Err(error) = book.enter(scenario, result) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress(&scenario.name, done, wanted.len());
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let skipped = skipped.into_iter().map(|scenario| scenario.name.clone()).collect();
    Ok(Recorded { skipped, ..book.conclude() })
}

/// Number of devices of the machine, which a child counts.
fn count_devices(program: &[OsString]) -> usize {
    let said = run_child(program, &["count".as_ref()], LIMIT);
    said.lines.last().and_then(|line| line.parse().ok()).unwrap_or(0)
}

fn has_trace(scenario: &Scenario, out: &Path) -> bool {
    let text = fs::read_to_string(path_of(out, &scenario.file)).unwrap_or_default();
    TraceFile::parse(&text).find(&scenario.name).is_some_and(|trace| trace.matches(scenario))
}

/// The file of traces below a folder.
pub(crate) fn path_of(folder: &Path, file: &str) -> PathBuf {
    folder.join(format!("{file}.txt"))
}

/// The name of a scenario, and its trace or its error.
type Page = (String, Result<Trace, String>);

/// The traces so far.
struct Book<'a> {
    recording: &'a Recording,
    library: &'a Library,
    head: Head,
    pages: Mutex<Vec<Page>>,
}

impl Book<'_> {
    /// Adds a result and writes the trace file.
    fn enter(&self, scenario: &Scenario, result: Result<Trace, String>) -> io::Result<()> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.push((scenario.name.clone(), result));
        let path = path_of(&self.recording.out, &scenario.file);
        let old = TraceFile::parse(&fs::read_to_string(&path).unwrap_or_default());
        let of_name = |name: &str| {
            let fresh = pages.iter().find(|(other, _)| other == name);
            let fresh = fresh.and_then(|(_, result)| result.as_ref().ok().cloned());
            fresh.or_else(|| old.find(name).cloned())
        };
        let in_file = self.library.scenarios.iter().filter(|other| other.file == scenario.file);
        let traces = in_file.filter_map(|other| of_name(&other.name)).collect();
        fs::create_dir_all(path.parent().unwrap_or(&self.recording.out))?;
        // Replaces the file as a whole, so an interruption never truncates it.
        let part = path.with_extension("part");
        fs::write(&part, TraceFile { head: self.head.clone(), traces }.text())?;
        fs::rename(part, path)
    }

    fn conclude(self) -> Recorded {
        let mut recorded = Recorded::default();
        recorded.mistakes.extend(self.library.mistakes.iter().map(ToString::to_string));
        for (name, result) in self.pages.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match result {
                Ok(trace) => recorded.count(&trace),
                Err(mistake) => recorded.mistakes.push(format!("{name}: {mistake}")),
            }
        }
        recorded
    }
}

impl Recorded {
    fn count(&mut self, trace: &Trace) {
        self.traces += 1;
        self.steps += trace.steps.len();
        if let Some((step, outcome)) = trace.steps.last().filter(|_| trace.is_cut_short()) {
            self.cut_short.push((trace.name.clone(), format!("{step} -> {outcome}")));
        }
    }
}

/// The output and exit status of a child process.
struct Said {
    lines: Vec<String>,
    ending: &'static str,
}

/// Runs a child until it ends or takes too long.
fn run_child(program: &[OsString], arguments: &[&OsStr], limit: Duration) -> Said {
    let (first, rest) = program.split_first().expect("a recording has a program");
    let mut command = Command::new(first);
    command.args(rest).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut process) = command.spawn() else {
        return Said { lines: Vec::new(), ending: "cannot start" };
    };
    let output = process.stdout.take().expect("the output is piped");
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (end, mut said) = (Instant::now() + limit, Vec::new());
    let ending = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) if line == child::END => break "end",
            Ok(line) => said.push(line),
            Err(RecvTimeoutError::Timeout) => break "hang",
            Err(RecvTimeoutError::Disconnected) => break "crash",
        }
    };
    // The process may never end on its own.
    let _ = process.kill();
    let _ = process.wait();
    Said { lines: said, ending }
}

fn run_one(recording: &Recording, scenario: &Scenario) -> Result<Trace, String> {
    let steps = scenario.steps.as_ref().map_err(ToString::to_string)?;
    let arguments = ["one".as_ref(), scenario.file.as_ref(), scenario.name.as_ref()];
    let said = run_child(&recording.program, &arguments, LIMIT);
    let mut outcomes = Vec::new();
    for line in said.lines {
        match line.split_once('\t') {
            Some(("outcome", outcome)) => outcomes.push(outcome.to_owned()),
            Some(("mistake", mistake)) => return Err(mistake.to_owned()),
            _ => {}
        }
    }
    if outcomes.len() < steps.len() && said.ending != "end" {
        outcomes.push(said.ending.to_owned());
    }
    let texts = steps.iter().map(|step| step.text.clone());
    Ok(Trace { name: scenario.name.clone(), steps: texts.zip(outcomes).collect() })
}
