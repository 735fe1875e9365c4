//! `retrograph`: fine-tune a transformer with its whole training step as one replayed CUDA graph.
//!
//! ```sh
//! retrograph finetune --text README.md --verify    # trains, on the simulated driver if need be
//! retrograph generate --model M --prompt "Once"    # continues a text, token by token
//! retrograph inspect --model Qwen2.5-0.5B          # says what is in it and what a run would take
//! retrograph bench --device cuda:0                 # measures strategies and sizes
//! retrograph merge --model M --adapter A --out N   # adds an adapter to its base model
//! ```
//!
//! Here are arguments, what is printed, and the handling of Ctrl-C.
//!
//! Absent on purpose: training and generating themselves, which are in `retrograph-finetune`.

mod args;
mod bench;
mod data;
mod decode_bench;
mod error;
mod eval;
mod failures;
mod file;
mod finetune;
mod generate;
mod hints;
mod inspect;
mod interrupt;
mod merge;
mod metrics;
mod outputs;
mod plot;
mod results;
mod resume;
mod sample;
mod screen;
mod start;
mod trained;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::error::CliError;
use crate::screen::Readers;

/// What a shell expects of a program that ended since nobody reads its output: 128 and the number
/// of SIGPIPE.
const READER_GONE: u8 = 141;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Training goes on for its checkpoints when nobody reads what is printed.
    let goes_on = matches!(command, Command::Finetune(_));
    let outcome = interrupt::install().and_then(|()| run(command));
    match outcome.and_then(|outcome| Ok((outcome, screen::finish()?))) {
        Ok((_, Readers::Gone)) if !goes_on => ExitCode::from(READER_GONE),
        Ok((Outcome::Done, _)) => ExitCode::SUCCESS,
        Ok((Outcome::Interrupted, _)) => interrupt::status(),
        Err(error) => {
            let error = screen::printable(&error.to_string());
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Finetune(arguments) => finetune::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::CompileWorker(arguments) => arguments.run(),
    }
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It did what it was asked for.
    Done,
    /// It was asked to stop.
    Interrupted,
}
