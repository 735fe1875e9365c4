//! Build of the tests with all mutants, and test runs with one mutant enabled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{Mutant, find};
use crate::workspace::{self, command, output};

const SIMULATOR: &str = "crates/driver-sim/src";
/// The mutated modules of the simulator: those that choose codes and keep state.
const MUTATED: [&str; 3] = ["api", "state", "work"];
/// The packages whose tests must kill mutants.
const SUITE: [&str; 2] = ["retrograph-driver-sim", "retrograph-conformance"];
/// Skips instruction vectors, which test other modules.
const ARGUMENTS: [&str; 2] = ["--skip", "vectors"];
const SWITCH: &str = "RETROGRAPH_MUTANT";
/// The time limit of a test run; a longer run counts as hanging.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The module that the switches call.
const RUNTIME: &str = r#"//! Switches of mutants.
use std::sync::LazyLock;
use crate::refusal::Refusal;
use retrograph_driver_sys::CUresult;
static ON: LazyLock<Option<usize>> =
    LazyLock::new(|| std::env::var("RETROGRAPH_MUTANT").ok()?.parse().ok());
pub(crate) fn is_on(id: usize) -> bool { *ON == Some(id) }
pub(crate) fn code(id: usize, code: CUresult) -> CUresult {
    match is_on(id) {
        false => code,
        true if code == CUresult::CUDA_ERROR_UNKNOWN => CUresult::CUDA_ERROR_INVALID_VALUE,
        true => CUresult::CUDA_ERROR_UNKNOWN,
    }
}
pub(crate) fn refusal(id: usize, refusal: Refusal) -> Refusal {
    Refusal { code: code(id, refusal.code), ..refusal }
}
"#;

/// A copy of the sources of the workspace.
pub(super) struct Copy {
    root: PathBuf,
}

/// The test programs with all mutants.
pub(super) struct Binaries {
    tests: Vec<(PathBuf, PathBuf)>,
    /// The mutants that do not compile.
    pub(super) unviable: Vec<usize>,
}

impl Copy {
    /// Copies all tracked files, with uncommitted changes.
    pub(super) fn new(root: PathBuf) -> anyhow::Result<Self> {
        let sources = root.join("sources");
        if sources.exists() {
            fs::remove_dir_all(&sources)?;
        }
        let list =
            output(command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]))?;
        for name in list.lines() {
            let (from, to) = (workspace::root().join(name), sources.join(name));
            if from.is_file() {
                fs::create_dir_all(to.parent().context("a file has no folder")?)?;
                fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
            }
        }
        Ok(Self { root })
    }

    fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Inserts all mutants and returns them.
    pub(super) fn plant(&self) -> anyhow::Result<Vec<Mutant>> {
        let library = self.sources().join(SIMULATOR).join("lib.rs");
        let text = fs::read_to_string(&library)?.replacen("\nmod ", "\nmod mutant;\nmod ", 1);
        fs::write(&library, text)?;
        fs::write(self.sources().join(SIMULATOR).join("mutant.rs"), RUNTIME)?;
        self.replant(&[])
    }

    /// Inserts all mutants except `skip`.
    fn replant(&self, skip: &[usize]) -> anyhow::Result<Vec<Mutant>> {
        let mut found = Vec::new();
        for folder in MUTATED {
            let mut files = Vec::new();
            list(&workspace::root().join(SIMULATOR).join(folder), &mut files)?;
            files.sort();
            for original in files {
                let name = original.strip_prefix(workspace::root())?;
                let text = fs::read_to_string(&original)?;
                let planted = find::plant(name, &text, skip, &mut found)
                    .with_context(|| format!("cannot parse {}", name.display()))?;
                fs::write(self.sources().join(name), planted)?;
            }
        }
        Ok(found)
    }

    /// Builds the tests without mutants on lines that do not compile.
    pub(super) fn build(&self, all: &[Mutant]) -> anyhow::Result<Binaries> {
        let mut unviable = BTreeSet::new();
        for _ in 0..8 {
            let messages = self.compile()?;
            let tests = executables(&messages);
            let lines = failing_lines(&messages);
            if lines.is_empty() {
                if tests.is_empty() {
                    bail!("the copy in {} builds no tests", self.root.display());
                }
                // The fastest tests run first.
                let mut tests = tests;
                tests.sort_by_key(|(_, folder)| folder.ends_with("conformance"));
                return Ok(Binaries { tests, unviable: unviable.into_iter().collect() });
            }
            let hit = |mutant: &&Mutant| {
                let end = mutant.line + mutant.text.matches(';').count() + 3;
                lines.iter().any(|(file, line)| {
                    Path::new(file) == mutant.file && (mutant.line..=end).contains(line)
                })
            };
            unviable.extend(all.iter().filter(hit).map(|mutant| mutant.id));
            let skip: Vec<usize> = unviable.iter().copied().collect();
            self.replant(&skip)?;
        }
        bail!("the copy in {} does not compile", self.root.display())
    }

    fn compile(&self) -> anyhow::Result<Vec<Value>> {
        let mut build = Command::new("cargo");
        build.args(["test", "--no-run", "--message-format=json"]).current_dir(self.sources());
        build.args(SUITE.iter().flat_map(|package| ["-p", package]));
        build.args(["--lib", "--tests"]);
        build.env("CARGO_TARGET_DIR", self.root.join("target")).stderr(Stdio::null());
        let built = build.output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&built.stdout);
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The test programs, each with the folder to run it in.
fn executables(messages: &[Value]) -> Vec<(PathBuf, PathBuf)> {
    let found = messages.iter().filter_map(|message| {
        let program = message["executable"].as_str()?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some((PathBuf::from(program), folder.to_path_buf()))
    });
    found.collect()
}

/// Files and lines of errors.
fn failing_lines(messages: &[Value]) -> Vec<(String, usize)> {
    let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
    let spans = errors.flat_map(|error| error["message"]["spans"].as_array().into_iter().flatten());
    let primary = spans.filter(|span| span["is_primary"] == true);
    primary
        .filter_map(|span| {
            let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
            Some((span["file_name"].as_str()?.to_owned(), line))
        })
        .collect()
}

impl Binaries {
    /// Runs the tests with each mutant and returns the survivors.
    pub(super) fn survivors<'a>(
        &self,
        chosen: &[&'a Mutant],
        jobs: usize,
    ) -> anyhow::Result<Vec<&'a Mutant>> {
        if let Some(program) = self.noticed(usize::MAX)? {
            bail!("a test fails without mutants; fix it first: {}", program.display());
        }
        let (next, done, survivors) =
            (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let worker = || -> anyhow::Result<()> {
            while let Some(mutant) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                let noticed = self.noticed(mutant.id)?.is_some();
                let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                if !noticed {
                    println!("[{count}/{}] survived: {mutant}", chosen.len());
                    survivors.lock().expect("no worker panics").push(*mutant);
                } else if count.is_multiple_of(50) {
                    println!("[{count}/{}]", chosen.len());
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            let ended = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
            ended.collect::<anyhow::Result<()>>()
        })?;
        let mut survivors = survivors.into_inner().expect("no worker panics");
        survivors.sort_by_key(|mutant| mutant.id);
        Ok(survivors)
    }

    /// The data to run the mutants on another machine: each program runs in its folder with these
    /// arguments and the switch set to the number of the mutant.
    pub(super) fn list(&self, chosen: &[&Mutant]) -> Value {
        let tests = self.tests.iter().map(|(program, folder)| json!([program, folder]));
        let mutants = chosen.iter().map(|mutant| json!([mutant.id, mutant.to_string()]));
        json!({
            "switch": SWITCH,
            "arguments": ARGUMENTS,
            "tests": tests.collect::<Vec<_>>(),
            "mutants": mutants.collect::<Vec<_>>(),
        })
    }

    /// The first test program that fails with a mutant.
    fn noticed(&self, id: usize) -> anyhow::Result<Option<&Path>> {
        for (program, folder) in &self.tests {
            let mut test = Command::new(program);
            test.args(ARGUMENTS).current_dir(folder).env(SWITCH, id.to_string());
            test.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
            let mut child = test.spawn().context("cannot start a test")?;
            let start = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break Some(status);
                }
                if start.elapsed() > TIME_LIMIT {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            if !status.is_some_and(|status| status.success()) {
                return Ok(Some(program));
            }
        }
        Ok(None)
    }
}
