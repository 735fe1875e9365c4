//! Recording of instruction vectors, one process per opcode.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, thread};

use retrograph_driver_sys::DriverTable;

use super::{LIMIT, run_child};
use crate::vectors::{Instance, Recorded, VectorFile, plan, run};

/// The time limit of an opcode, with hundreds of kernels to compile.
const OPCODE_LIMIT: Duration = Duration::from_secs(240);

/// Instances per module.
const BATCH: usize = 64;

/// The result of a recording of vectors.
#[derive(Clone, Debug, Default)]
pub struct RecordedVectors {
    /// Instances with results.
    pub instances: usize,
    /// Cases in them.
    pub cases: usize,
    /// Instances that failed, and why.
    pub failed: Vec<String>,
}

/// Records the opcode `opcode`, or all if it is empty, into a folder.
pub fn record_vectors(
    program: &[OsString],
    out: &Path,
    jobs: usize,
    opcode: &str,
    progress: &(dyn Fn(&str) + Sync),
) -> io::Result<RecordedVectors> {
    fs::create_dir_all(out)?;
    let plan = plan(opcode);
    let opcodes: BTreeSet<_> = plan.instances.iter().map(|one| one.opcode.text()).collect();
    let opcodes: Vec<_> = opcodes.into_iter().collect();
    let head = run_child(program, &["describe".as_ref()], LIMIT).lines;
    let (next, all) = (AtomicUsize::new(0), Mutex::new(RecordedVectors::default()));
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(one) = opcodes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut recorded = record_opcode(program, out, &head, one);
                    progress(one);
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.instances += recorded.instances;
                    all.cases += recorded.cases;
                    all.failed.append(&mut recorded.failed);
                }
            });
        }
    });
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn record_opcode(
    program: &[OsString],
    out: &Path,
    head: &[String],
    opcode: &str,
) -> RecordedVectors {
    let mut recorded = RecordedVectors::default();
    let said = run_child(program, &["vectors".as_ref(), opcode.as_ref()], OPCODE_LIMIT);
    let mut file = VectorFile::default();
    for line in &said.lines {
        match line.split_once('\t') {
            Some(("vector", entry)) => file.vectors.extend(VectorFile::parse(entry).vectors),
            Some((_, failure)) => recorded.failed.push(failure.to_owned()),
            None => {}
        }
    }
    if said.ending != "end" {
        recorded.failed.push(format!("{opcode}: {}", said.ending));
    }
    recorded.instances = file.vectors.len();
    recorded.cases = file.vectors.values().map(|one| one.cases).sum();
    file.head = head.to_vec();
    if let Err(error) = fs::write(out.join(format!("{opcode}.txt")), file.text()) {
        recorded.failed.push(format!("{opcode}: {error}"));
    }
    recorded
}

/// Runs all instances of an opcode and prints each result.
pub(super) fn child(table: &DriverTable, opcode: &str, say: &mut dyn FnMut(&str)) {
    let plan = plan(opcode);
    let all: Vec<&Instance> = plan.instances.iter().collect();
    for batch in all.chunks(BATCH) {
        match run(table, batch) {
            Ok(results) => {
                for (instance, words) in batch.iter().zip(results) {
                    tell(instance, &words, say);
                }
            }
            Err(_) => batch.iter().for_each(|instance| alone(table, instance, say)),
        }
    }
}

fn alone(table: &DriverTable, instance: &Instance, say: &mut dyn FnMut(&str)) {
    match run(table, &[instance]) {
        Ok(results) => results.iter().for_each(|words| tell(instance, words, say)),
        Err(error) => say(&format!("failure\t{}: {error}", instance.name)),
    }
}

fn tell(instance: &Instance, words: &[u64], say: &mut dyn FnMut(&str)) {
    let mut file = VectorFile::default();
    file.vectors.insert(instance.name.clone(), Recorded::of(instance, words));
    say(&format!("vector\t{}", file.text().trim_end()));
}
