//! Replaying traces on the simulator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use retrograph_driver_sim::{Config, Diagnostic, DiagnosticKind, Refused, Simulator};

use crate::Folders;
use crate::record::path_of;
use crate::runner::{self, Outcome};
use crate::scenario::{Library, Scenario};
use crate::trace::{Trace, TraceFile};

/// Number of concurrent scenarios: more than cores, because long scenarios mostly wait.
const WORKERS: usize = 10;

/// A step whose outcome differs from the trace.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The scenario.
    pub scenario: String,
    /// The location of the step.
    pub place: String,
    /// The step.
    pub step: String,
    /// The outcome on hardware.
    pub expected: String,
    /// The outcome on the simulator.
    pub actual: String,
    /// The diagnostics of the simulator.
    pub diagnostics: Vec<String>,
}

/// The run of a scenario on the simulator.
#[derive(Clone, Debug)]
pub struct Played {
    /// Steps with their outcomes.
    pub steps: Vec<(String, String)>,
    /// The diagnostics of the simulator.
    pub diagnostics: Vec<Diagnostic>,
    /// The errors that it returned before the first difference from the trace.
    pub refused: Vec<Refused>,
}

/// The result of a replay.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Scenarios that have a trace and were replayed.
    pub replayed: usize,
    /// Steps in them.
    pub steps: usize,
    /// Scenarios that agree with their trace.
    pub agreeing: usize,
    /// The first differing step of each other scenario.
    pub differences: Vec<Difference>,
    /// The same for scenarios that are listed as differing.
    pub known: Vec<Difference>,
    /// Scenarios that are listed as differing but agree, and files and scenarios that are listed as
    /// unrecorded but have a trace.
    pub outdated: Vec<String>,
    /// Scenarios that are listed as unrecorded, by name or file. They ran on the simulator.
    pub unrecorded: usize,
    /// Scenarios without a trace of their current steps, with reasons.
    pub untraced: Vec<(String, &'static str)>,
    /// Traces without a scenario.
    pub orphans: Vec<String>,
    /// Errors in scenarios and files.
    pub mistakes: Vec<String>,
    /// Errors that a trace attests, with the first such scenario by name.
    pub attested: BTreeMap<Refused, String>,
}

impl Report {
    /// Whether every scenario has a trace, unless it is listed as unrecorded, and the simulator
    /// agrees with it.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty()
            && self.outdated.is_empty()
            && self.untraced.is_empty()
            && self.orphans.is_empty()
            && self.mistakes.is_empty()
    }

    /// Moves listed differences to `known`.
    fn set_known_aside(&mut self, listed: &[String], filter: &str) {
        let differences = std::mem::take(&mut self.differences);
        let is_known = |one: &Difference| listed.contains(&one.scenario);
        (self.known, self.differences) = differences.into_iter().partition(is_known);
        let differs = |name: &String| self.known.iter().any(|one| one.scenario == *name);
        let outdated = listed.iter().filter(|name| name.contains(filter) && !differs(name));
        self.outdated = outdated.cloned().collect();
    }

    /// Adds errors that a trace attests. The first trace by name is kept.
    fn attest(&mut self, refused: Vec<Refused>, name: &str) {
        for one in refused {
            let first = self.attested.entry(one).or_insert_with(|| name.to_owned());
            if name < first.as_str() {
                name.clone_into(first);
            }
        }
    }

    /// The index of attested errors: one line per error with rule, function, code and trace.
    pub fn index(&self) -> String {
        let line = |(refused, name): (&Refused, &String)| {
            format!("{} {} {} {name}\n", refused.rule, refused.call, refused.code.0)
        };
        let head =
            "# rule function code trace; written by `cargo xtask conformance replay --bless`\n";
        std::iter::once(head.to_owned()).chain(self.attested.iter().map(line)).collect()
    }
}

/// Runs a scenario on its own simulator.
pub fn play(scenario: &Scenario, images: &Path) -> Result<Played, String> {
    play_along(scenario, None, images)
}

fn play_along(scenario: &Scenario, trace: Option<&Trace>, images: &Path) -> Result<Played, String> {
    let mut config = Config::default();
    config.threads = 1;
    config.recorded_attributes = true;
    config.attested_only = false;
    config.devices = scenario.devices();
    let simulator = Simulator::new(config).map_err(|error| error.to_string())?;
    let mut refused = Vec::new();
    let mut expected = trace.map(|trace| trace.steps.iter());
    let run = runner::run(scenario, simulator.table(), images, &mut |_, outcome: &Outcome| {
        let next = expected.as_mut().map(Iterator::next);
        if next.is_none_or(|next| next.is_some_and(|(_, text)| *text == outcome.0)) {
            refused = simulator.refused();
        } else {
            expected = Some([].iter());
        }
    });
    let run = run.map_err(|mistake| mistake.to_string())?;
    let texts = scenario.steps.iter().flatten().map(|step| step.text.clone());
    let steps = texts.zip(run.outcomes.into_iter().map(|outcome| outcome.0)).collect();
    let diagnostics = simulator.diagnostics();
    if run.ending == runner::Ending::Stuck {
        // A hung thread still uses the simulator.
        std::mem::forget(simulator);
    }
    Ok(Played { steps, diagnostics, refused })
}

/// Replays the scenarios whose names contain `filter`, concurrently.
pub fn replay(folders: &Folders, filter: &str) -> Report {
    let library = Library::load(&folders.scenarios);
    let mut report = Report::default();
    report.mistakes.extend(library.mistakes.iter().map(ToString::to_string));
    let traces = traces_of(&library, &folders.traces);
    let unrecorded = listed(&folders.unrecorded);
    let wanted: Vec<_> = library.matching(filter).collect();
    let next = AtomicUsize::new(0);
    let shared = Mutex::new(&mut report);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(scenario) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let trace =
                        traces.get(&scenario.file).and_then(|file| file.find(&scenario.name));
                    let is_listed =
                        [&scenario.file, &scenario.name].map(|it| unrecorded.contains(it));
                    let verdict = if trace.is_none() && is_listed.contains(&true) {
                        Verdict::unrecorded(scenario, &folders.images)
                    } else {
                        Verdict::of(scenario, trace, &folders.images)
                    };
                    let mut report = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    verdict.enter(scenario, &mut report);
                }
            });
        }
    });
    for trace in traces.values().flat_map(|file| &file.traces) {
        let is_known = library.scenarios.iter().any(|scenario| scenario.name == trace.name);
        if !is_known && trace.name.contains(filter) {
            report.orphans.push(trace.name.clone());
        }
    }
    report.set_known_aside(&listed(&folders.differences), filter);
    let is_recorded = |listed: &String| match traces.get(listed) {
        Some(file) => !file.traces.is_empty(),
        None => library.scenarios.iter().find(|scenario| scenario.name == *listed).is_none_or(
            |scenario| traces.get(&scenario.file).is_some_and(|file| file.find(listed).is_some()),
        ),
    };
    report.outdated.extend(unrecorded.into_iter().filter(is_recorded));
    report.differences.sort_by(|one, other| one.scenario.cmp(&other.scenario));
    report.untraced.sort();
    report
}

/// The names that a file lists: a name, a blank and the reason.
fn listed(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn traces_of(library: &Library, folder: &Path) -> BTreeMap<String, TraceFile> {
    let mut traces = BTreeMap::new();
    for scenario in &library.scenarios {
        traces.entry(scenario.file.clone()).or_insert_with(|| {
            let text = fs::read_to_string(path_of(folder, &scenario.file));
            TraceFile::parse(&text.unwrap_or_default())
        });
    }
    traces
}

/// The result of one scenario.
enum Verdict {
    ScenarioError(String),
    Untraced(&'static str),
    Unrecorded,
    Differs(Difference, Vec<Refused>),
    Agrees(usize, Vec<Refused>),
}

impl Verdict {
    /// Runs a scenario that is listed as unrecorded.
    fn unrecorded(scenario: &Scenario, images: &Path) -> Self {
        if let Err(mistake) = &scenario.steps {
            return Self::ScenarioError(mistake.to_string());
        }
        play(scenario, images).map_or_else(Self::ScenarioError, |_| Self::Unrecorded)
    }

    fn of(scenario: &Scenario, trace: Option<&Trace>, images: &Path) -> Self {
        if let Err(mistake) = &scenario.steps {
            return Self::ScenarioError(mistake.to_string());
        }
        let Some(trace) = trace else {
            return Self::Untraced("no trace");
        };
        if !trace.matches(scenario) {
            return Self::Untraced("the trace is of other steps");
        }
        match play_along(scenario, Some(trace), images) {
            Err(mistake) => Self::ScenarioError(mistake),
            Ok(played) => match difference(scenario, trace, &played) {
                Some(difference) => Self::Differs(difference, played.refused),
                None => Self::Agrees(trace.steps.len(), played.refused),
            },
        }
    }

    fn enter(self, scenario: &Scenario, report: &mut Report) {
        match self {
            Self::ScenarioError(mistake) => report.mistakes.push(mistake),
            Self::Untraced(why) => report.untraced.push((scenario.name.clone(), why)),
            Self::Unrecorded => report.unrecorded += 1,
            Self::Differs(difference, refused) => {
                report.replayed += 1;
                report.differences.push(difference);
                report.attest(refused, &scenario.name);
            }
            Self::Agrees(steps, refused) => {
                report.replayed += 1;
                report.agreeing += 1;
                report.steps += steps;
                report.attest(refused, &scenario.name);
            }
        }
    }
}

/// The first step whose outcome differs from the trace.
fn difference(scenario: &Scenario, trace: &Trace, played: &Played) -> Option<Difference> {
    let missing = ("".to_owned(), "nothing".to_owned());
    for (at, (step, expected)) in trace.steps.iter().enumerate() {
        let (_, actual) = played.steps.get(at).unwrap_or(&missing);
        let is_cut = matches!(expected.as_str(), "crash" | "hang");
        let stopped = played.diagnostics.iter().any(|one| one.kind == DiagnosticKind::Undefined);
        // If hardware ends the process, the simulator stops with undefined behavior.
        if actual == expected || is_cut && stopped {
            continue;
        }
        let place = scenario.steps.as_ref().ok().and_then(|steps| steps.get(at));
        return Some(Difference {
            scenario: scenario.name.clone(),
            place: place.map(|step| step.place.to_string()).unwrap_or_default(),
            step: step.clone(),
            expected: expected.clone(),
            actual: actual.clone(),
            diagnostics: played.diagnostics.iter().map(ToString::to_string).collect(),
        });
    }
    None
}
