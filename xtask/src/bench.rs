//! `cargo xtask bench`: compares our times with PyTorch's on one machine with a GPU.
//!
//! A case runs our program and then the peer's script, and fills rows of the table. Results are
//! appended after each case, and the table and the plot are written again.

mod cases;
mod check;
mod commands;
mod compile_ahead;
mod floor;
mod measure;
mod plot;
mod programs;
mod results;
mod table;

use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use retrograph_finetune::{Device, DeviceChoice};
use serde_json::{Value, json};

use self::cases::Case;
use self::commands::Settings;
use self::floor::Row;
use self::programs::{Places, Programs};
use self::results::{Measured, Record, Results};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    action: Action,
    /// Directory of results.jsonl, table.md and plot.svg.
    #[arg(long, value_name = "DIR", default_value = "out/peers")]
    out: PathBuf,
    /// Run only the cases whose names contain one of these texts, separated by commas.
    #[arg(long, value_name = "TEXTS", value_delimiter = ',')]
    rows: Vec<String>,
    /// Take 5 samples instead of 20, and leave out PyTorch's eager and merged variants.
    #[arg(long)]
    quick: bool,
    /// Of PyTorch's steps, measure only the compiled variants, which are the fastest in most rows.
    #[arg(long, conflicts_with = "quick")]
    compiled_only: bool,
    /// Measure only our programs. The table says that the peers were left out.
    #[arg(long)]
    without_peers: bool,
    /// Compile PyTorch's steps with this many processes before the first case. Their models are on
    /// the GPU at the same time.
    #[arg(long, value_name = "PROCESSES", conflicts_with = "without_peers")]
    compile_ahead: Option<usize>,
    /// Run cases again that are already in results.jsonl.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    places: Places,
    /// Text to store with each result, such as the commit of the programs.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Action {
    /// Measure our programs and PyTorch.
    #[arg(long)]
    peers: bool,
    /// Print the names of the cases.
    #[arg(long)]
    list: bool,
    /// Run small forms of our commands on the simulated driver, and check the peers' arguments.
    /// Writes no times.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = cases::all();
        let wanted = |case: &Case| self.rows.iter().any(|text| case.name().contains(text));
        cases.retain(|case| self.rows.is_empty() || wanted(case));
        if cases.is_empty() {
            bail!("no case is named like {}; --list prints all names", self.rows.join(" or "));
        }
        Ok(cases)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cases = arguments.cases()?;
    if arguments.action.list {
        cases.iter().for_each(|case| println!("{}", case.name()));
        return Ok(());
    }
    if arguments.action.check {
        return check::run(&cases, &Programs::debug(&arguments.places, &cases)?);
    }
    measure_all(arguments, &cases)
}

/// `--check` of all cases.
pub(crate) fn check() -> anyhow::Result<()> {
    let cases = cases::all();
    check::run(&cases, &Programs::debug(&Places::default(), &cases)?)
}

fn measure_all(arguments: &Arguments, cases: &[Case]) -> anyhow::Result<()> {
    let programs = Programs::release(&arguments.places, cases)?;
    let machine = machine(arguments, &programs)?;
    println!("machine {machine}");
    let Arguments { quick, compiled_only, without_peers, .. } = *arguments;
    let settings = Settings { quick, compiled_only, without_peers };
    let mut results = Results::open(&arguments.out)?;
    if let Some(jobs) = arguments.compile_ahead {
        let missing = |case: &&Case| arguments.fresh || !results.has(case, settings);
        let cases: Vec<_> = cases.iter().filter(missing).collect();
        compile_ahead::run(&cases, &programs, settings, jobs);
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?;
    let bar = ProgressBar::new(cases.len() as u64).with_style(style);
    let mut failures = Vec::new();
    for case in cases {
        bar.set_message(case.name());
        if arguments.fresh || !results.has(case, settings) {
            if bar.is_hidden() {
                println!("case    {}", case.name());
            }
            let measured = measure::case(case, &programs, settings);
            let records = measured.map(|rows| records(arguments, &machine, rows));
            match records.and_then(|records| results.append(records)) {
                Ok(lines) => bar.suspend(|| print!("{lines}")),
                Err(error) => {
                    let line = format!("{}: {error:#}", case.name());
                    bar.suspend(|| eprintln!("failed  {line}"));
                    failures.push(line);
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    results.write()?;
    println!("wrote results.jsonl, table.md and plot.svg to {}", arguments.out.display());
    failures.extend(results.peer_errors());
    if !failures.is_empty() {
        bail!("{} cases or rows failed:\n{}", failures.len(), failures.join("\n"));
    }
    Ok(())
}

fn records(arguments: &Arguments, machine: &Value, rows: Vec<(Row, Measured)>) -> Vec<Record> {
    let record = |(row, measured)| Record {
        row,
        measured,
        quick: arguments.quick,
        label: arguments.label.clone(),
        machine: machine.clone(),
    };
    rows.into_iter().map(record).collect()
}

/// The GPU, the driver, and the versions of PyTorch. Fails if one of them is missing.
fn machine(arguments: &Arguments, programs: &Programs) -> anyhow::Result<Value> {
    let device = Device::open(DeviceChoice::Cuda(0))?;
    if device.simulated || device.info.name.contains("SIMULATED") {
        bail!("the driver is simulated, and its times are meaningless");
    }
    let ours = json!({
        "device": device.info.name,
        "driver_cuda": device.context.driver().version().to_string(),
    });
    if arguments.without_peers {
        return Ok(ours);
    }
    let lines = programs.script("machine.py", &[]).context(
        "the peers cannot run; install PyTorch, name another Python, or leave the peers out",
    )?;
    let mut all = lines.into_iter().next().context("machine.py printed no JSON line")?;
    if all["device"] != ours["device"] {
        bail!("we use {}, but PyTorch uses {}", ours["device"], all["device"]);
    }
    all["driver_cuda"] = ours["driver_cuda"].clone();
    Ok(all)
}
