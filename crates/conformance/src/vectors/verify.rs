//! Comparison of the simulator with recorded vectors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use retrograph_driver_sim::{Config, Simulator};

use super::file::{Recorded, VectorFile};
use super::inputs::inputs;
use super::instance::Instance;
use super::plan::plan;
use super::run::run;
use super::tolerance::{Bound, agrees, bound, measure};

/// The first wrong case of an instance.
#[derive(Clone, Debug)]
pub struct WrongCase {
    /// The instance.
    pub name: String,
    /// Numbers of wrong cases and of all cases.
    pub wrong: (usize, usize),
    /// The sources of the first wrong case, as bits.
    pub sources: Vec<u64>,
    /// The results of hardware.
    pub expected: Vec<u64>,
    /// The results of the simulator.
    pub actual: Vec<u64>,
}

/// The distance of an approximation from hardware.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The allowed distance.
    pub bound: Bound,
    /// The largest distance in units in the last place, over pairs of numbers.
    pub ulps: f64,
    /// Number of cases.
    pub cases: usize,
}

/// The result of a comparison.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of compared instances.
    pub instances: usize,
    /// Number of their cases.
    pub cases: usize,
    /// Instances with wrong cases.
    pub wrong: Vec<WrongCase>,
    /// Instances that the simulator cannot run, with reasons.
    pub unsupported: Vec<(String, String)>,
    /// Instances without vectors for their current inputs.
    pub missing: Vec<String>,
    /// Vectors without an instance.
    pub orphans: Vec<String>,
    /// Approximations by opcode and type.
    pub measured: BTreeMap<String, Measured>,
}

impl Report {
    /// Whether all recorded results agree.
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.unsupported.is_empty() && self.orphans.is_empty()
    }
}

/// The instances that the simulator cannot run, with reasons.
pub fn unsupported(opcode: &str) -> Vec<(String, String)> {
    let plan = plan(opcode);
    let all: Vec<&Instance> = plan.instances.iter().collect();
    let batches: Vec<_> = all.chunks(BATCH).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if simulate(batch).is_ok() {
                        continue;
                    }
                    let alone = batch
                        .iter()
                        .filter_map(|one| Some((one.name.clone(), simulate(&[one]).err()?)));
                    found.lock().unwrap_or_else(PoisonError::into_inner).extend(alone);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Instances per module.
const BATCH: usize = 64;

/// Compares the instances of an opcode, or all if it is empty, with the vectors in a folder.
pub fn verify(folder: &Path, opcode: &str) -> Report {
    let plan = plan(opcode);
    let mut report = Report::default();
    let mut files: BTreeMap<&str, VectorFile> = BTreeMap::new();
    let mut work: Vec<(&Instance, Recorded)> = Vec::new();
    for instance in &plan.instances {
        let file = files.entry(instance.opcode.text()).or_insert_with(|| {
            let path = folder.join(format!("{}.txt", instance.opcode));
            VectorFile::parse(&fs::read_to_string(path).unwrap_or_default())
        });
        match file.vectors.remove(&instance.name) {
            Some(recorded) if recorded.is_of(instance) => work.push((instance, recorded)),
            _ => report.missing.push(instance.name.clone()),
        }
    }
    report.orphans = files.into_values().flat_map(|file| file.vectors.into_keys()).collect();
    let batches: Vec<_> = work.chunks(BATCH).collect();
    let (next, shared) = (AtomicUsize::new(0), Mutex::new(&mut report));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (instance, recorded, result) in played(batch) {
                        let mut report = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        report.enter(instance, recorded, result);
                    }
                }
            });
        }
    });
    report.wrong.sort_by(|one, other| one.name.cmp(&other.name));
    report
}

type Played<'a> = (&'a Instance, &'a Recorded, Result<Vec<u64>, String>);

/// Runs a batch on a simulator. If that fails, runs each instance on its own simulator.
fn played<'a>(batch: &'a [(&'a Instance, Recorded)]) -> Vec<Played<'a>> {
    let instances: Vec<_> = batch.iter().map(|(instance, _)| *instance).collect();
    if let Ok(all) = simulate(&instances) {
        let pairs = batch.iter().zip(all);
        return pairs
            .map(|((instance, recorded), words)| (*instance, recorded, Ok(words)))
            .collect();
    }
    let alone = |(instance, recorded): &'a (&'a Instance, Recorded)| {
        let result = simulate(&[instance]).map(|mut all| all.pop().unwrap_or_default());
        (*instance, recorded, result)
    };
    batch.iter().map(alone).collect()
}

/// Runs instances on a simulator. The error has the simulator's diagnostics.
pub(super) fn simulate(instances: &[&Instance]) -> Result<Vec<Vec<u64>>, String> {
    let mut config = Config::default();
    config.threads = 1;
    let simulator = Simulator::new(config).map_err(|error| error.to_string())?;
    run(simulator.table(), instances).map_err(|error| {
        let said: Vec<_> = simulator.diagnostics().iter().map(ToString::to_string).collect();
        format!("{error}: {}", said.join("; "))
    })
}

impl Report {
    fn enter(
        &mut self,
        instance: &Instance,
        recorded: &Recorded,
        result: Result<Vec<u64>, String>,
    ) {
        let actual = match result {
            Ok(words) => Recorded::of(instance, &words).words(instance),
            Err(why) => return self.unsupported.push((instance.name.clone(), why)),
        };
        self.instances += 1;
        self.cases += instance.cases;
        let expected = recorded.words(instance);
        let sources = inputs(instance);
        let (width, count) = (instance.results.len(), instance.sources.len());
        let bound = bound(instance);
        let mut wrong: Option<WrongCase> = None;
        for case in 0..instance.cases {
            let of_case = |words: &[u64]| words[case * width..(case + 1) * width].to_vec();
            let inputs = sources[case * count..(case + 1) * count].to_vec();
            let (one, other) = (of_case(&expected), of_case(&actual));
            let mut pairs = one.iter().zip(&other).zip(&instance.results);
            let argument = inputs.first().copied().unwrap_or_default();
            if pairs.all(|((one, other), of)| agrees(bound, *of, *one, *other, argument)) {
                continue;
            }
            let first = WrongCase {
                name: instance.name.clone(),
                wrong: (0, instance.cases),
                sources: inputs,
                expected: one,
                actual: other,
            };
            wrong.get_or_insert(first).wrong.0 += 1;
        }
        self.wrong.extend(wrong);
        self.measure(instance, bound, &expected, &actual);
    }

    fn measure(&mut self, instance: &Instance, bound: Bound, one: &[u64], other: &[u64]) {
        if bound == Bound::Exact {
            return;
        }
        let of = instance.results[0];
        let key = format!("{} {of}", instance.opcode);
        let measured = self.measured.entry(key).or_insert(Measured { bound, ulps: 0.0, cases: 0 });
        measured.cases += instance.cases;
        for (one, other) in one.iter().zip(other) {
            let distance = measure(of, *one, *other);
            // Larger distances are pairs with one NaN.
            if distance < 1e18 {
                measured.ulps = measured.ulps.max(distance);
            }
        }
    }
}
