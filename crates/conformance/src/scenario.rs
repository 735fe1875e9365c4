//! Scenarios: files, expanded into steps.

mod expand;
mod value;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use value::{Out, Value};

use crate::error::{Location, Problem, ScenarioError};
use crate::functions::{self, Function};

/// A scenario with all loops and snippets expanded.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its unique name.
    pub name: String,
    /// The file relative to the folder of scenarios, without extension: `<area>/<topic>`.
    pub file: String,
    /// Where it begins.
    pub place: Location,
    /// The steps, or the first error.
    pub steps: Result<Vec<Step>, ScenarioError>,
}

/// One step of a scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// The text of the step in traces.
    pub text: String,
    /// The location.
    pub place: Location,
    pub(crate) thread: String,
    pub(crate) action: Action,
}

/// The action of a step.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Calls the driver.
    Call { function: &'static Function, arguments: Vec<Value> },
    /// Records a variable.
    Show(String),
    /// Records the log of host functions.
    Log,
    /// Reads elements of a type from device memory.
    Read { address: Value, of: String, count: usize },
    /// Waits for a number of milliseconds.
    Sleep(u64),
    /// The machine has no devices; first step of a scenario.
    NoDevices,
    /// The machine has two devices; first step of a scenario.
    TwoDevices,
}

impl Scenario {
    /// The number of devices of the machine: 1, unless the first step says otherwise.
    pub(crate) fn devices(&self) -> usize {
        match self.steps.iter().flatten().next().map(|step| &step.action) {
            Some(Action::NoDevices) => 0,
            Some(Action::TwoDevices) => 2,
            _ => 1,
        }
    }
}

/// All scenarios of a folder.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The scenarios, by file and in the order of the file.
    pub scenarios: Vec<Scenario>,
    /// Errors in files.
    pub mistakes: Vec<ScenarioError>,
}

impl Library {
    /// Reads every file below a folder. An error in a file does not affect others.
    pub fn load(folder: &Path) -> Self {
        let mut files = Vec::new();
        collect(folder, &mut files);
        files.sort();
        Self::load_files(folder, &files, |_| true)
    }

    /// Reads one file by its name below a folder.
    pub fn load_one(folder: &Path, name: &str) -> Self {
        let mut files = Vec::new();
        collect(folder, &mut files);
        Self::load_files(folder, &files, |file| file == Path::new(name))
    }

    fn load_files(folder: &Path, files: &[PathBuf], wanted: impl Fn(&Path) -> bool) -> Self {
        let mut library = Self::default();
        let shared: Vec<_> =
            files.iter().filter(|path| is_shared(path)).map(|path| source(path)).collect();
        for path in files.iter().filter(|path| !is_shared(path)) {
            let file = path.strip_prefix(folder).unwrap_or(path).with_extension("");
            if !wanted(&file) {
                continue;
            }
            match expand::file(&source(path), &shared) {
                Ok(found) => library.scenarios.extend(found.into_iter().map(|scenario| {
                    let file = file.to_string_lossy().replace('\\', "/");
                    let steps = scenario.lines.iter().map(step).collect();
                    Scenario { name: scenario.name, file, place: scenario.place, steps }
                })),
                Err(mistake) => library.mistakes.push(mistake),
            }
        }
        library.complain_of_doubles();
        library
    }

    fn complain_of_doubles(&mut self) {
        let mut first = BTreeMap::new();
        for scenario in &self.scenarios {
            if first.insert(&scenario.name, &scenario.place).is_some() {
                let name = scenario.name.clone();
                let problem = Problem::Syntax { expected: "a name of its own", found: name };
                self.mistakes.push(problem.at(&scenario.place));
            }
        }
    }

    /// The scenarios whose names contain a text.
    pub fn matching<'a>(&'a self, filter: &'a str) -> impl Iterator<Item = &'a Scenario> {
        self.scenarios.iter().filter(move |scenario| scenario.name.contains(filter))
    }
}

/// Whether a file has snippets for all files: its name begins with an underscore or is
/// `snippets.txt`.
fn is_shared(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "snippets" || stem == "common")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
}

fn source(path: &Path) -> expand::SourceFile {
    let text = fs::read_to_string(path).map_err(|error| error.to_string());
    expand::SourceFile { file: Arc::new(path.to_owned()), text }
}

/// Parses one line of a scenario.
fn step(line: &expand::Line) -> Result<Step, ScenarioError> {
    let (thread, rest) = thread_of(&line.text);
    let action = action(rest).map_err(|problem| problem.at(&line.place))?;
    Ok(Step {
        text: line.text.clone(),
        place: line.place.clone(),
        thread: thread.unwrap_or("main").to_owned(),
        action,
    })
}

/// `name: rest`, where the name is a thread.
fn thread_of(text: &str) -> (Option<&str>, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
    match text[end..].strip_prefix(": ") {
        Some(rest) if end > 0 => (Some(&text[..end]), rest.trim()),
        _ => (None, text),
    }
}

fn action(text: &str) -> Result<Action, Problem> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let values = value::list(rest)?;
    let word = |at: usize| match values.get(at) {
        Some(Value::Name(name)) => Ok(name.clone()),
        other => Problem::syntax("a name", format!("{other:?}")),
    };
    let number = |at: usize| match values.get(at) {
        Some(Value::Integer(number)) if *number >= 0 => Ok(*number as u64),
        other => Problem::syntax("a number", format!("{other:?}")),
    };
    match verb {
        "show" => Ok(Action::Show(word(0)?)),
        "log" => Ok(Action::Log),
        "no_devices" => Ok(Action::NoDevices),
        "two_devices" => Ok(Action::TwoDevices),
        "sleep" => Ok(Action::Sleep(number(0)?)),
        "read" => {
            let Some(address) = values.first().cloned() else {
                return Problem::syntax("an address", "");
            };
            Ok(Action::Read { address, of: word(1)?, count: number(2)? as usize })
        }
        _ => call(verb, values),
    }
}

fn call(name: &str, arguments: Vec<Value>) -> Result<Action, Problem> {
    let Some(function) = functions::find(name) else {
        return Problem::unknown("function", name);
    };
    let (expected, found) = (function.parameters.len(), arguments.len());
    if expected != found {
        return Err(Problem::Arguments { function: function.name, expected, found });
    }
    Ok(Action::Call { function, arguments })
}
