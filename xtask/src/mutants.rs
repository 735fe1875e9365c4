//! The parser against `ptxas`: both must accept or both reject a text with one small change.
//!
//! The texts are kernels of the workspace and of `nvcc`. `mutants/known.txt` lists the allowed
//! kinds of differences with reasons.

mod change;
mod judge;
mod known;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use change::{Pool, change};
use judge::{Difference, Verdict, assemble, compare};
use text::Token;

use crate::{toolchain, workspace};

/// Maximum lines of a text; `ptxas` is slow on longer texts.
const MAX_LINES: usize = 450;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of mutants.
    #[arg(long, default_value_t = 3000)]
    pub(crate) count: u64,
    /// Seed of the mutants.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The assembler [default: the pinned one].
    #[arg(long)]
    pub(crate) ptxas: Option<PathBuf>,
}

/// The results so far.
#[derive(Default)]
struct Tally {
    accepted: u64,
    rejected: u64,
    crashed: u64,
    kinds: BTreeMap<String, Vec<String>>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ptxas = match &arguments.ptxas {
        Some(path) => path.clone(),
        None => toolchain::ensure()?,
    };
    let texts = sources()?;
    let tally = judge_all(arguments, &ptxas, &texts)?;
    report(arguments, &tally)
}

/// The texts as tokens.
fn sources() -> anyhow::Result<Vec<Vec<Token>>> {
    let root = workspace::root();
    let folders = ["kernels-ptx/golden", "crates/driver-sim/tests/nvcc"];
    let mut texts = Vec::new();
    for folder in folders {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(root.join(folder))
            .with_context(|| format!("cannot read {folder}"))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
            .collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path)?;
            if text.lines().count() <= MAX_LINES {
                texts.push(text::tokens(&text));
            }
        }
    }
    if texts.is_empty() {
        bail!("no text is short enough");
    }
    Ok(texts)
}

/// The mutant with number `index`.
fn mutant(texts: &[Vec<Token>], pool: &Pool, seed: u64, index: u64) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(index);
    loop {
        let tokens = texts.choose(&mut random).expect("there is a text");
        if let Some(changed) = change(tokens, pool, &mut random) {
            return text::print(&changed);
        }
    }
}

fn judge_all(arguments: &Arguments, ptxas: &Path, texts: &[Vec<Token>]) -> anyhow::Result<Tally> {
    let (next, tally, pool) = (AtomicU64::new(0), Mutex::new(Tally::default()), Pool::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work = |thread: usize| -> anyhow::Result<()> {
        let folder = workspace::target_dir().join(format!("mutants/{thread}"));
        std::fs::create_dir_all(&folder)?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= arguments.count {
                return Ok(());
            }
            let text = mutant(texts, &pool, arguments.seed, index);
            let verdict = assemble(ptxas, &folder, &text)?;
            let difference = compare(&text, &verdict);
            tally.lock().expect("no holder of the lock panics").add(&verdict, difference);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("no thread panics"))
    })?;
    Ok(tally.into_inner().expect("no holder of the lock panics"))
}

impl Tally {
    fn add(&mut self, verdict: &Verdict, difference: Option<Difference>) {
        match verdict {
            Verdict::Accepted => self.accepted += 1,
            Verdict::Rejected(_) => self.rejected += 1,
            Verdict::Crashed => self.crashed += 1,
        }
        if let Some(Difference { kind, line }) = difference {
            self.kinds.entry(kind).or_default().push(line);
        }
    }
}

/// Prints the results, and fails if a difference is not listed.
fn report(arguments: &Arguments, tally: &Tally) -> anyhow::Result<()> {
    let table = known::table();
    let (mut known, mut unknown) = (0, 0);
    for (kind, lines) in &tally.kinds {
        if let Some(row) = known::find(&table, kind) {
            known += lines.len();
            println!("{:4} known: {kind}\n       {}", lines.len(), row.reason);
        } else {
            unknown += lines.len();
            println!("{:4} UNKNOWN: {kind}", lines.len());
            lines.iter().take(3).for_each(|line| println!("       {line}"));
        }
    }
    let Tally { accepted, rejected, crashed, .. } = tally;
    println!(
        "ptx-mutants: {} texts of seed {}; ptxas accepts {accepted}, rejects {rejected}, \
         crashes on {crashed}; {known} known differences of {} kinds, {unknown} unknown",
        arguments.count,
        arguments.seed,
        tally.kinds.len()
    );
    if unknown > 0 {
        bail!(
            "{unknown} differences between the parser and ptxas are not in \
             xtask/src/mutants/known.txt; fix the parser or list them with a reason"
        );
    }
    Ok(())
}
