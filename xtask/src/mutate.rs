//! `cargo xtask mutate`: does the suite notice when the simulator is wrong?
//!
//! Every error code that the simulator returns and every statement that changes its state is a
//! place for a mutant: the code becomes another one, the statement is dropped. All mutants are
//! compiled at once into a copy of the sources, each behind a switch that an environment variable
//! turns on, so that one mutant costs one run of the tests and no build. A mutant is killed when a
//! test fails, crashes or hangs under it.

mod find;
mod run;

use std::path::PathBuf;

use anyhow::bail;
use rand::SeedableRng;
use rand::seq::SliceRandom;

use crate::workspace::target_dir;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many mutants to try, drawn at random; all when absent.
    #[arg(long)]
    count: Option<usize>,
    /// Decides which mutants are drawn.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many mutants run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// The share of killed mutants, in percent, below which the check fails.
    #[arg(long, default_value_t = 95.0)]
    least: f64,
    /// Only mutants of files whose path contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Write the mutants and the test programs to this file as JSON instead of trying them, so that
    /// another machine can.
    #[arg(long)]
    list: Option<PathBuf>,
}

/// A place where the simulator can be made wrong.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) id: usize,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// The code that is changed, on one line.
    pub(crate) text: String,
}

/// How the simulator is made wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An error has another code.
    FlipRefusal,
    /// A code is another one.
    FlipCode,
    /// A statement is missing.
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
        bail!("the suite notices {share:.1} % of the mutants, not {} %", arguments.least);
    }
    Ok(())
}
