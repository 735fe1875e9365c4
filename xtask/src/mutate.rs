//! `cargo xtask mutate`: mutation tests of the simulator.
//!
//! A mutant changes an error code that the simulator returns, or drops a statement that changes its
//! state. All mutants are compiled at once into a copy of the sources; an environment variable
//! enables one, so a mutant costs one test run and no build. A mutant is killed if a test fails,
//! crashes or hangs.

mod find;
mod run;

use std::path::PathBuf;

use anyhow::bail;
use rand::SeedableRng;
use rand::seq::SliceRandom;

use crate::workspace::target_dir;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of random mutants [default: all].
    #[arg(long)]
    count: Option<usize>,
    /// Seed of the random choice.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of concurrent mutants.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Minimum share of killed mutants, in percent.
    #[arg(long, default_value_t = 95.0)]
    least: f64,
    /// Only mutants of files whose path contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Write mutants and test programs as JSON to this file, to run them on another machine.
    #[arg(long)]
    list: Option<PathBuf>,
}

/// A mutant.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) id: usize,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// The changed code, on one line.
    pub(crate) text: String,
}

/// The kind of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Changes the code of a refusal.
    FlipRefusal,
    /// Changes a result code.
    FlipCode,
    /// Drops a statement.
    Drop,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.kind == Kind::Drop { "drop" } else { "flip" };
        write!(f, "{}:{}: {verb} {}", self.file.display(), self.line, self.text)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let copy = run::Copy::new(target_dir().join("mutants"))?;
    let all = copy.plant()?;
    let binaries = copy.build(&all)?;
    let unviable: Vec<usize> = binaries.unviable.clone();
    let viable = all.iter().filter(|mutant| !unviable.contains(&mutant.id));
    let named = viable.filter(|mutant| mutant.file.to_string_lossy().contains(&arguments.only));
    let mut chosen: Vec<&Mutant> = named.collect();
    if let Some(count) = arguments.count {
        chosen.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(arguments.seed));
        chosen.truncate(count);
    }
    println!("{} mutants, {} do not compile, {} tried", all.len(), unviable.len(), chosen.len());
    if chosen.is_empty() {
        bail!("no mutant to try");
    }
    if let Some(file) = &arguments.list {
        return Ok(std::fs::write(file, binaries.list(&chosen).to_string())?);
    }
    let survivors = binaries.survivors(&chosen, arguments.jobs)?;
    for mutant in &survivors {
        println!("survived: {mutant}");
    }
    let killed = chosen.len() - survivors.len();
    let share = 100.0 * killed as f64 / chosen.len() as f64;
    println!("{killed} of {} mutants killed: {share:.1} %", chosen.len());
    if share < arguments.least {
        bail!("the tests kill {share:.1} % of the mutants, less than {} %", arguments.least);
    }
    Ok(())
}
