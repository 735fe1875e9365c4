//! `cargo xtask conformance`: scenarios recorded on hardware and replayed on the simulator.

mod vectors;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use retrograph_conformance::record::{Recording, child, record};
use retrograph_conformance::replay::{Difference, Report, play, replay};
use retrograph_conformance::{Folders, Library};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Folder with scenarios, traces and images.
    #[arg(long, global = true, default_value = "crates/conformance")]
    root: PathBuf,
}

#[derive(Subcommand)]
enum Verb {
    /// Run every scenario on a real driver, each in its own process, and write the traces.
    Record(Record),
    /// Run every scenario on the simulator and compare with the traces.
    Replay(Replay),
    /// Count the scenarios of each area.
    List(List),
    /// The command of `record` for each scenario.
    #[command(hide = true)]
    Child(Child),
}

#[derive(Args)]
struct Record {
    /// The driver's library [default: searched like DriverTable::load].
    #[arg(long)]
    driver: Option<PathBuf>,
    /// The output folder [default: `traces` next to the scenarios].
    #[arg(long)]
    out: Option<PathBuf>,
    /// Number of concurrent processes.
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Skip scenarios whose trace has their current steps.
    #[arg(long)]
    missing: bool,
    /// Record the vectors of instructions, instead of scenarios; the filter is an opcode.
    #[arg(long)]
    vectors: bool,
    /// Only scenarios whose names contain this.
    #[arg(default_value = "")]
    filter: String,
}

#[derive(Args)]
struct Replay {
    /// Write the index of attested errors, from the scenarios that agree.
    #[arg(long)]
    bless: bool,
    /// Print the outcomes on the simulator, without traces.
    #[arg(long)]
    print: bool,
    /// Compare the vectors of instructions, instead of scenarios; the filter is an opcode.
    #[arg(long)]
    vectors: bool,
    /// Only scenarios whose names contain this.
    #[arg(default_value = "")]
    filter: String,
}

#[derive(Args)]
struct List {
    /// Print every name.
    #[arg(long)]
    names: bool,
    /// Write the kernels of the instruction vectors to this folder.
    #[arg(long)]
    kernels: Option<PathBuf>,
}

#[derive(Args)]
struct Child {
    #[arg(long)]
    driver: Option<PathBuf>,
    arguments: Vec<String>,
}

/// The simulator's index of attested errors.
const INDEX: &str = "crates/driver-sim/src/attested.txt";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let folders = Folders::under(&arguments.root);
    if !folders.scenarios.is_dir() {
        bail!("{} is not a folder; pass --root", folders.scenarios.display());
    }
    match &arguments.verb {
        Verb::Record(record) => run_record(arguments, record, &folders),
        Verb::Replay(replay) if replay.vectors => vectors::replay(&replay.filter, &folders),
        Verb::Replay(replay) if replay.print => print(&replay.filter, &folders),
        Verb::Replay(replay) => run_replay(replay, &folders),
        Verb::List(list) => run_list(list, &folders),
        Verb::Child(asked) => {
            child(asked.driver.as_deref(), &folders, &asked.arguments)?;
            Ok(())
        }
    }
}

fn run_record(all: &Arguments, asked: &Record, folders: &Folders) -> anyhow::Result<()> {
    let mut program = vec![std::env::current_exe()?.into_os_string()];
    program.extend(["conformance", "child", "--root"].map(Into::into));
    program.push(all.root.clone().into_os_string());
    if let Some(driver) = &asked.driver {
        program.push("--driver".into());
        program.push(driver.clone().into_os_string());
    }
    if asked.vectors {
        let out = asked.out.clone().unwrap_or_else(|| folders.vectors.clone());
        return vectors::record(&program, &out, asked);
    }
    let recording = Recording {
        program,
        scenarios: folders.scenarios.clone(),
        out: asked.out.clone().unwrap_or_else(|| folders.traces.clone()),
        jobs: asked.jobs,
        filter: asked.filter.clone(),
        only_missing: asked.missing,
    };
    let started = Instant::now();
    let recorded = record(&recording, &|name, done, all| {
        if done.is_multiple_of(50) || done == all {
            println!("{done}/{all} {:.0} s {name}", started.elapsed().as_secs_f64());
        }
    })?;
    for (name, step) in &recorded.cut_short {
        println!("cut short: {name}: {step}");
    }
    for name in &recorded.skipped {
        println!("needs two devices: {name}");
    }
    for mistake in &recorded.mistakes {
        println!("mistake: {mistake}");
    }
    println!(
        "{} scenarios, {} steps, {} cut short, {} skipped, {} mistakes",
        recorded.traces,
        recorded.steps,
        recorded.cut_short.len(),
        recorded.skipped.len(),
        recorded.mistakes.len()
    );
    Ok(())
}

fn run_replay(asked: &Replay, folders: &Folders) -> anyhow::Result<()> {
    let report = replay(folders, &asked.filter);
    for difference in &report.differences {
        print_difference(difference);
    }
    for mistake in &report.mistakes {
        println!("mistake: {mistake}");
    }
    for name in &report.outdated {
        println!("listed as different or unrecorded, and is not: {name}");
    }
    print_untraced(&report);
    println!(
        "{} scenarios replayed, {} agree ({} steps), {} differ as listed, {} differ; \
         {} not recorded yet as listed, {} without a trace, {} mistakes",
        report.replayed,
        report.agreeing,
        report.steps,
        report.known.len(),
        report.differences.len(),
        report.unrecorded,
        report.untraced.len(),
        report.mistakes.len()
    );
    if asked.bless {
        bless(&report, &asked.filter)?;
    }
    if !report.is_clean() {
        bail!("the simulator differs from the traces listed above");
    }
    Ok(())
}

fn print_untraced(report: &Report) {
    for (name, why) in report.untraced.iter().take(20) {
        println!("{why}: {name}");
    }
    if report.untraced.len() > 20 {
        println!("and {} more without a trace", report.untraced.len() - 20);
    }
    for name in &report.orphans {
        println!("no scenario for the trace {name}");
    }
}

fn print_difference(difference: &Difference) {
    println!("{} ({})", difference.scenario, difference.place);
    println!("    {}", difference.step);
    println!("    hardware:  {}", difference.expected);
    println!("    simulator: {}", difference.actual);
    for diagnostic in &difference.diagnostics {
        println!("    {diagnostic}");
    }
}

fn bless(report: &Report, filter: &str) -> anyhow::Result<()> {
    if !filter.is_empty() {
        bail!("--bless replays all scenarios; omit the filter");
    }
    std::fs::write(INDEX, report.index()).with_context(|| format!("cannot write {INDEX}"))?;
    println!("{INDEX}: {} attested errors", report.attested.len());
    Ok(())
}

fn print(filter: &str, folders: &Folders) -> anyhow::Result<()> {
    let library = Library::load(&folders.scenarios);
    let mut wrong = library.mistakes.len();
    for mistake in &library.mistakes {
        println!("mistake: {mistake}");
    }
    for scenario in library.matching(filter) {
        println!("scenario {}", scenario.name);
        match play(scenario, &folders.images) {
            Ok(played) => {
                for (step, outcome) in &played.steps {
                    println!("  {step} -> {outcome}");
                }
                for diagnostic in &played.diagnostics {
                    println!("  # {diagnostic}");
                }
            }
            Err(mistake) => {
                println!("  mistake: {mistake}");
                wrong += 1;
            }
        }
        println!("end\n");
        std::io::stdout().flush()?;
    }
    if wrong > 0 {
        bail!("{wrong} scenarios or files have the errors listed above");
    }
    Ok(())
}

fn run_list(asked: &List, folders: &Folders) -> anyhow::Result<()> {
    let library = Library::load(&folders.scenarios);
    let mut areas: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for scenario in &library.scenarios {
        if asked.names {
            println!("{}", scenario.name);
        }
        let area = scenario.file.split('/').next().unwrap_or_default();
        let counts = areas.entry(area).or_default();
        counts.0 += 1;
        match &scenario.steps {
            Ok(steps) => counts.1 += steps.len(),
            Err(mistake) => println!("mistake: {mistake}"),
        }
    }
    for mistake in &library.mistakes {
        println!("mistake: {mistake}");
    }
    for (area, (scenarios, steps)) in &areas {
        println!("{area:<16} {scenarios:>6} scenarios {steps:>8} steps");
    }
    println!("{:<16} {:>6} scenarios", "all", library.scenarios.len());
    vectors::list();
    if let Some(folder) = &asked.kernels {
        vectors::write_kernels(folder)?;
    }
    Ok(())
}
