//! `cargo xtask prewarm`: checks that every kernel assembles within its budget and is warm.
//!
//! Generates and assembles every kernel for every SM target, compares it with the committed budget,
//! and compares the entries that dispatch can launch with the warmed ones. With a device, loads and
//! launches everything. Reports skipped checks; any shortfall fails.

mod assembled;
mod budget;
mod coverage;
mod device;
mod measure;
mod occupancy;
mod show;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use retrograph_finetune::Preset;
use retrograph_kernels::images;
use retrograph_ptx::SmTarget;
use retrograph_runtime::modules::{Bundle, BundleEntry};
use sha2::{Digest, Sha256};

use crate::ptxas::{Job, Usage, assemble_all, jobs};
use crate::{toolchain, workspace};

pub(crate) use device::{WorkerArguments, worker};

use assembled::Assembled;
use budget::Budget;
use coverage::Coverage;
use device::DeviceName;

#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Only these SM targets, for example sm_80,sm_90a. A number without a letter, such as sm_90,
    /// means the target generated for that device.
    #[arg(long, alias = "target", value_delimiter = ',', value_parser = generated)]
    targets: Vec<SmTarget>,
    /// Only images whose name contains this.
    #[arg(long)]
    image: Option<String>,
    /// Assemble only images that have changed since the budget was written.
    #[arg(long, conflicts_with_all = ["bless", "bundle"])]
    changed: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write the budget from the current kernels; review the diff.
    #[arg(long)]
    bless: bool,
    /// Write the machine code of all targets into one file, for deployment. With --skip-assembly,
    /// read it.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Load and launch everything on this device: cuda:N or sim.
    #[arg(long)]
    device: Option<DeviceName>,
    /// Do not assemble, for machines without ptxas.
    #[arg(long)]
    skip_assembly: bool,
    /// Measure the time to warm the training step on the device, from each source.
    #[arg(long, requires = "device")]
    measure: bool,
    /// With --measure: also compile with this ptxas.
    #[arg(long, value_name = "FILE", requires = "measure")]
    ptxas: Option<PathBuf>,
    /// With --measure: the model of the training step. For tiny, the default, all weights are
    /// trained in f32; other models are trained with LoRA in bf16, with 4 sequences of 512 tokens.
    #[arg(long, requires = "measure")]
    preset: Option<Preset>,
    /// With --measure: number of repetitions.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// The case of one process of a measurement.
    #[arg(long, hide = true)]
    case: Option<String>,
    /// The folder that processes of a measurement share.
    #[arg(long, hide = true)]
    case_folder: Option<PathBuf>,
}

/// The generated target of a name.
fn generated(name: &str) -> Result<SmTarget, String> {
    let target: SmTarget = name.parse().map_err(|error| format!("{error}"))?;
    target.generated().ok_or_else(|| {
        let all: Vec<_> = SmTarget::GENERATED.iter().map(SmTarget::to_string).collect();
        format!("there are no images for {target}; there are for {}", all.join(", "))
    })
}

/// One entry point for one target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) usage: Usage,
    /// Threads of the largest block.
    pub(crate) threads: u32,
    /// Resident blocks per SM.
    pub(crate) blocks: u32,
    /// Statements of PTX.
    pub(crate) statements: u32,
}

/// The results of the checks.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    /// Failed checks.
    pub(crate) shortfalls: Vec<String>,
    /// Skipped checks.
    pub(crate) unchecked: Vec<String>,
    /// Notes for the reader.
    pub(crate) notes: Vec<String>,
    /// Results of the device.
    pub(crate) device: serde_json::Value,
    pub(crate) measured: serde_json::Value,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(case) = &arguments.case {
        return measure::run_case(arguments, case);
    }
    let mut findings = Findings::default();
    let jobs = jobs(arguments.targets());
    let coverage = cover(&jobs, &mut findings);
    if arguments.skip_assembly {
        findings.unchecked.push("assembly, registers, budget: --skip-assembly".to_owned());
    } else {
        assemble(arguments, &jobs, &coverage, &mut findings)?;
    }
    match &arguments.device {
        None => findings.unchecked.push("loading and launching: no --device".to_owned()),
        Some(name) => device::check(arguments, name, &coverage, &mut findings)?,
    }
    if arguments.measure {
        measure::run(arguments, &mut findings)?;
    }
    show::all(&findings, arguments.json);
    match findings.shortfalls.len() {
        0 => Ok(()),
        count => bail!("prewarm: {count} shortfalls"),
    }
}

impl Arguments {
    /// Returns the arguments of the CI job: all checks that need no GPU, of changed images.
    pub(crate) fn of_ci() -> Self {
        Self { device: Some(DeviceName::Simulated), changed: true, ..Self::default() }
    }

    fn targets(&self) -> &[SmTarget] {
        if self.targets.is_empty() { SmTarget::GENERATED } else { &self.targets }
    }

    fn is_whole(&self) -> bool {
        self.targets.is_empty() && self.image.is_none()
    }
}

fn cover(jobs: &[Job], findings: &mut Findings) -> Coverage {
    let mut coverage = Coverage::default();
    for of_target in jobs.chunk_by(|a, b| a.target == b.target) {
        for kernel in retrograph_kernels::all() {
            coverage.add(kernel, of_target);
        }
    }
    findings.shortfalls.append(&mut coverage.shortfalls);
    let unreached = coverage.unreached(retrograph_kernels::all());
    if !unreached.is_empty() {
        findings
            .notes
            .push(format!("warm, and chosen for no problem that was tried: {unreached:?}"));
    }
    coverage
}

fn assemble(
    arguments: &Arguments,
    jobs: &[Job],
    coverage: &Coverage,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let ptxas = toolchain::ensure()?;
    let now = Assembled::of(jobs, coverage);
    let part = arguments.image.as_deref().unwrap_or_default();
    let mut jobs: Vec<&Job> = jobs.iter().filter(|job| job.image.contains(part)).collect();
    if jobs.is_empty() {
        bail!("no image matches `{part}`");
    }
    if arguments.changed {
        let (all, budgeted) = (jobs.len(), Assembled::read()?);
        jobs.retain(|job| !now.is_same(&budgeted, job));
        let same = all - jobs.len();
        findings.notes.push(format!(
            "{same} images are unchanged since the budget was written, and are not assembled"
        ));
    }
    let bar = bar(jobs.len(), "assemble");
    let (usages, failures) = assemble_all(&ptxas, &jobs, &bar);
    bar.finish_and_clear();
    findings.shortfalls.extend(failures);
    let spilling = |usage: &&Usage| usage.spill_bytes > images::max_spilled_bytes(&usage.entry);
    let spills = usages.iter().filter(spilling).map(|usage| {
        format!("{} for {} spills {} bytes", usage.entry, usage.target, usage.spill_bytes)
    });
    findings.shortfalls.extend(spills);
    let mut rows: Vec<Row> = usages.into_iter().map(|usage| row(usage, &jobs, coverage)).collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| (row.usage.image.clone(), row.usage.entry.clone(), row.usage.target);
        key(a).cmp(&key(b))
    });
    compare(arguments, &rows, findings)?;
    if arguments.bless && findings.shortfalls.is_empty() {
        now.write()?;
    }
    findings.rows = rows;
    if let Some(path) = &arguments.bundle {
        let note = bundle(path, &jobs).context("the bundle")?;
        findings.notes.push(note);
    }
    Ok(())
}

/// Returns the row of an entry point, with the largest block that dispatch launched, or else the
/// largest block that the entry allows.
fn row(usage: Usage, jobs: &[&Job], coverage: &Coverage) -> Row {
    let job = jobs.iter().find(|job| job.image == usage.image && job.target == usage.target);
    let entry = job.and_then(|job| job.module.entry(&usage.entry));
    let allowed = entry.and_then(|entry| entry.limits.max_threads);
    let allowed = allowed.map_or(1024, |[x, y, z]| x * y * z);
    let statements = entry.map_or(0, |entry| entry.body.len() as u32);
    let launched = coverage.of(&usage.entry, usage.target);
    let threads = if launched.threads == 0 { allowed } else { launched.threads };
    let (registers, shared_bytes) = (usage.registers, usage.shared_bytes + launched.shared_bytes);
    let block = occupancy::Block { threads, registers, shared_bytes };
    Row { blocks: occupancy::blocks(usage.target, block), threads, statements, usage }
}

fn compare(arguments: &Arguments, rows: &[Row], findings: &mut Findings) -> anyhow::Result<()> {
    let path = workspace::root().join("kernels-ptx/budget.tsv");
    if arguments.bless {
        if !arguments.is_whole() {
            bail!("--bless writes the whole budget; omit --targets and --image");
        }
        fs::write(&path, Budget::of(rows).text())?;
        findings.notes.push("kernels-ptx/budget.tsv is written; review the diff".to_owned());
        return Ok(());
    }
    let text = fs::read_to_string(&path)
        .context("cannot read kernels-ptx/budget.tsv; write it with --bless")?;
    let budget = Budget::parse(&text)?;
    let whole = arguments.is_whole() && !arguments.changed;
    findings.shortfalls.extend(budget.shortfalls(rows, whole));
    Ok(())
}

/// Writes the machine code of all `jobs`.
fn bundle(path: &PathBuf, jobs: &[&Job]) -> anyhow::Result<String> {
    let entries: Vec<BundleEntry> = jobs
        .iter()
        .map(|job| {
            Ok(BundleEntry {
                name: job.image.clone(),
                image: Sha256::digest(job.module.to_string()).into(),
                target: job.target,
                producer: toolchain::PTXAS_REQUIREMENT.to_owned(),
                code: fs::read(job.cubin())?,
            })
        })
        .collect::<anyhow::Result<_>>()?;
    let bundle = Bundle::write_verified(path, &entries)?;
    let bytes = fs::metadata(path)?.len();
    Ok(format!("{}: {} images, {bytes} bytes", path.display(), bundle.len()))
}

/// Returns a progress bar of `length` steps, visible only on a terminal.
pub(crate) fn bar(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<10} {bar:30} {pos}/{len} {msg}");
    let bar = ProgressBar::new(length as u64).with_prefix(what);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
