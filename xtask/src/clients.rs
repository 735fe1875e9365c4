//! Unmodified test suites of other projects from registries, on the simulator's `libcuda.so.1`.
//!
//! A suite is pinned, installed into the build directory and never changed. `expected.tsv` lists
//! the tests that may fail; every other failure is a regression.

mod cudarc;
mod expected;
mod numba;
mod suite;
mod table;

use std::path::PathBuf;

use anyhow::bail;

use self::expected::Expectations;
use self::suite::{Outcome, Report};
use crate::workspace::{check, command, target_dir};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The clients, all of them if none is named: cudarc, numba-cuda.
    names: Vec<String>,
    /// Run only modules or tests whose name contains this text, and do not write the table.
    #[arg(long)]
    only: Option<String>,
    /// Judge the results of the last run of numba-cuda again, for example after a change of the
    /// list, without running it.
    #[arg(long)]
    again: bool,
}

/// A project with tests that run on a CUDA driver.
struct Client {
    name: &'static str,
    run: fn(&Setup) -> anyhow::Result<Report>,
}

const CLIENTS: &[Client] =
    &[Client { name: "cudarc", run: cudarc::run }, Client { name: "numba-cuda", run: numba::run }];

/// The inputs of a client.
struct Setup {
    /// The command `retrograph-sim`.
    simulator: PathBuf,
    /// The folder for the files and results of the client.
    folder: PathBuf,
    /// A part of the names of the tests or modules to run.
    only: String,
    /// Whether to use existing results.
    again: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    for name in &arguments.names {
        if CLIENTS.iter().all(|client| client.name != name) {
            let names: Vec<_> = CLIENTS.iter().map(|client| client.name).collect();
            bail!("no client `{name}`; the clients are {}", names.join(", "));
        }
    }
    let simulator = simulator()?;
    let expectations = Expectations::load()?;
    let (mut regressions, mut rows) = (0, Vec::new());
    for client in CLIENTS {
        if !arguments.names.is_empty() && !arguments.names.iter().any(|name| name == client.name) {
            continue;
        }
        let setup = Setup {
            simulator: simulator.clone(),
            folder: target_dir().join("clients").join(client.name),
            only: arguments.only.clone().unwrap_or_default(),
            again: arguments.again,
        };
        std::fs::create_dir_all(&setup.folder)?;
        let report = (client.run)(&setup)?;
        regressions += judge(client.name, &report, &expectations);
        rows.push(table::Rows::new(client.name, &report, &expectations)?);
    }
    if arguments.only.is_none() {
        table::write(&rows)?;
    }
    if regressions > 0 {
        bail!("{regressions} tests failed that {} does not list", expected::FILE);
    }
    Ok(())
}

/// Builds the command and copies it, so that a concurrent build does not change the simulator under
/// test.
fn simulator() -> anyhow::Result<PathBuf> {
    check(command("cargo", &["build", "--locked", "-p", "retrograph-sim"]))?;
    let folder = target_dir().join("clients");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join("retrograph-sim");
    std::fs::copy(target_dir().join("debug/retrograph-sim"), &copy)?;
    Ok(copy)
}

/// Prints regressions and unexpected successes. Returns the number of regressions.
fn judge(client: &str, report: &Report, expectations: &Expectations) -> usize {
    let mut regressions = 0;
    for test in &report.tests {
        let listed = expectations.find(client, &test.name);
        match (&test.outcome, listed) {
            (Outcome::Fail, None) => {
                println!("regression: {client} {}: {}", test.name, test.cause);
                regressions += 1;
            }
            (Outcome::Pass, Some(entry)) if !entry.varies => {
                println!("passes now, remove it from the list: {client} {}", test.name);
            }
            _ => {}
        }
    }
    let count = |outcome| report.tests.iter().filter(|test| test.outcome == outcome).count();
    let (passed, failed) = (count(Outcome::Pass), count(Outcome::Fail));
    println!("{client}: {passed} passed, {failed} failed, {} skipped", count(Outcome::Skip));
    regressions
}
