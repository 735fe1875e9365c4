//! Assembles every image for every SM target with the pinned `ptxas`: the writer and the parser are
//! ours and could agree on a mistake, the assembler is not. A spill in any kernel is a failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use retrograph_ptx::SmTarget;

use crate::{toolchain, workspace};

#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Only this SM target, for example sm_90.
    #[arg(long)]
    target: Option<SmTarget>,
    /// Only images whose name contains this.
    #[arg(long)]
    image: Option<String>,
    /// Print one line of JSON for each kernel instead of the table.
    #[arg(long)]
    json: bool,
}

/// What the assembler says of one entry point.
struct Usage {
    target: SmTarget,
    image: String,
    entry: String,
    registers: u32,
    shared_bytes: u32,
    spill_bytes: u32,
}

struct Job {
    target: SmTarget,
    image: String,
    source: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ptxas = toolchain::ensure()?;
    let jobs = write_sources(arguments)?;
    let (mut usages, failures) = assemble_all(&ptxas, &jobs);
    usages.sort_by(|a, b| (&a.image, &a.entry, a.target).cmp(&(&b.image, &b.entry, b.target)));
    if arguments.json {
        usages.iter().for_each(|usage| println!("{}", to_json(usage)));
    } else {
        print_table(&usages);
    }
    for failure in &failures {
        println!("{failure}");
    }
    let spills: Vec<_> = usages.iter().filter(|usage| usage.spill_bytes > 0).collect();
    for usage in &spills {
        println!("{} for {} spills {} bytes", usage.entry, usage.target, usage.spill_bytes);
    }
    if !failures.is_empty() || !spills.is_empty() {
        bail!("{} images do not assemble, {} kernels spill", failures.len(), spills.len());
    }
    println!("ptxas: {} images, {} entry points, no spills", jobs.len(), usages.len());
    Ok(())
}

fn write_sources(arguments: &Arguments) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let wanted = |target: &SmTarget| arguments.target.is_none_or(|only| only == *target);
    for target in SmTarget::GENERATED.into_iter().filter(wanted) {
        let dir = workspace::target_dir().join(format!("ptx/{target}"));
        fs::create_dir_all(&dir)?;
        for (image, module) in retrograph_kernels_ptx::images(target) {
            if arguments.image.as_ref().is_some_and(|part| !image.contains(part.as_str())) {
                continue;
            }
            let source = dir.join(format!("{image}.ptx"));
            fs::write(&source, module.to_string())?;
            jobs.push(Job { target, image: image.to_string(), source });
        }
    }
    if jobs.is_empty() {
        bail!("no image matches; the targets are {:?}", SmTarget::GENERATED.map(|t| t.to_string()));
    }
    Ok(jobs)
}

fn assemble_all(ptxas: &Path, jobs: &[Job]) -> (Vec<Usage>, Vec<String>) {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Vec::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = assemble(ptxas, job);
                    let mut results = results.lock().expect("no holder of the lock panics");
                    match result {
                        Ok(usages) => results.0.extend(usages),
                        Err(error) => results.1.push(format!("{error:#}")),
                    }
                }
            });
        }
    });
    results.into_inner().expect("no holder of the lock panics")
}

fn assemble(ptxas: &Path, job: &Job) -> anyhow::Result<Vec<Usage>> {
    let mut command = Command::new(ptxas);
    command.arg("-v").arg(format!("-arch={}", job.target)).arg(&job.source);
    command.arg("-o").arg(job.source.with_extension("cubin"));
    let output = command.output().context("cannot start ptxas")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} for {}: {log}", job.image, job.target);
    }
    let usages = parse_log(&log, job)?;
    if usages.is_empty() {
        bail!("{} for {}: ptxas reported no entry point", job.image, job.target);
    }
    Ok(usages)
}

/// Reads the `-v` report: a line that names the entry point, then its spills and its resources.
fn parse_log(log: &str, job: &Job) -> anyhow::Result<Vec<Usage>> {
    let mut usages: BTreeMap<String, Usage> = BTreeMap::new();
    let mut entry = String::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or_default().to_owned();
            let (target, image) = (job.target, job.image.clone());
            let (registers, shared_bytes, spill_bytes) = (0, 0, 0);
            let name = entry.clone();
            let usage = Usage { target, image, entry: name, registers, shared_bytes, spill_bytes };
            usages.insert(entry.clone(), usage);
        } else if let Some(usage) = usages.get_mut(&entry) {
            usage.spill_bytes += number_before(line, " bytes spill stores").unwrap_or(0);
            usage.spill_bytes += number_before(line, " bytes spill loads").unwrap_or(0);
            usage.registers = number_before(line, " registers").unwrap_or(usage.registers);
            usage.shared_bytes = number_before(line, " bytes smem").unwrap_or(usage.shared_bytes);
        }
    }
    if let Some(usage) = usages.values().find(|usage| usage.registers == 0) {
        bail!("ptxas reported no registers for {}: {log}", usage.entry);
    }
    Ok(usages.into_values().collect())
}

fn number_before(line: &str, suffix: &str) -> Option<u32> {
    let head = &line[..line.find(suffix)?];
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn to_json(usage: &Usage) -> serde_json::Value {
    serde_json::json!({
        "target": usage.target.to_string(), "image": usage.image, "entry": usage.entry,
        "registers": usage.registers, "shared_bytes": usage.shared_bytes,
        "spill_bytes": usage.spill_bytes,
    })
}

/// One row for each entry point: the registers for each target, and shared memory.
fn print_table(usages: &[Usage]) {
    let targets: Vec<_> = SmTarget::GENERATED.iter().map(|t| format!("{t:>7}")).collect();
    println!("{:<40} {:>7} {}", "registers per thread of", "shared", targets.join(" "));
    let mut rows: BTreeMap<&str, (u32, BTreeMap<SmTarget, u32>)> = BTreeMap::new();
    for usage in usages {
        let row = rows.entry(&usage.entry).or_default();
        row.0 = row.0.max(usage.shared_bytes);
        row.1.insert(usage.target, usage.registers);
    }
    for (entry, (shared, registers)) in rows {
        let cell = |t| registers.get(t).map_or("-".to_owned(), u32::to_string);
        let cells: Vec<_> = SmTarget::GENERATED.iter().map(|t| format!("{:>7}", cell(t))).collect();
        println!("{entry:<40} {shared:>7} {}", cells.join(" "));
    }
}
