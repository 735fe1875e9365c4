//! `retrograph`: fine-tune a transformer with its whole training step as one replayed CUDA graph.
//!
//! ```sh
//! retrograph finetune --text README.md --verify    # trains, on the simulated driver without a GPU
//! retrograph generate --model M --prompt "Once"    # generates text
//! retrograph chat --model M --adapter A            # chats with a model
//! retrograph serve --model M --port 8080           # serves it with the OpenAI API
//! retrograph eval --model M --text README.md       # measures the loss on a text
//! retrograph inspect --model Qwen2.5-0.5B          # shows a model and the memory of a run
//! retrograph bench --device cuda:0                 # measures strategies and sizes
//! retrograph merge --model M --adapter A --out N   # merges an adapter into its base model
//! retrograph export --checkpoint C --out N         # exports a trained model
//! ```
//!
//! The program parses arguments, prints results and handles Ctrl-C. Training and generation are in
//! `retrograph-finetune`.

mod args;
mod bench;
mod chat;
mod config_file;
mod data;
mod decode_bench;
mod engine;
mod error;
mod eval;
mod export;
mod failures;
mod file;
mod finetune;
mod generate;
mod hints;
mod inspect;
mod interrupt;
mod metrics;
mod outputs;
mod plot;
mod ranks;
mod results;
mod resume;
mod run_config;
mod run_file;
mod sample;
mod screen;
mod sequence_length;
mod serve;
mod tensorboard;
mod trained;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::args::{Arguments, Command};
use crate::config_file::{Given, Line};
use crate::error::CliError;
use crate::screen::Readers;

/// The exit status of a program whose output has no reader: 128 plus the number of SIGPIPE.
const READER_GONE: u8 = 141;

fn main() -> ExitCode {
    let command = match config_file::arguments() {
        Ok(line) => parse(line),
        Err(error) => return failed(&error),
    };
    // Training continues without a reader of its output, to write checkpoints.
    let goes_on = matches!(command, Command::Finetune(_));
    let outcome = interrupt::install().and_then(|()| run(command));
    match outcome.and_then(|outcome| Ok((outcome, screen::finish()?))) {
        Ok((_, Readers::Gone)) if !goes_on => ExitCode::from(READER_GONE),
        Ok((Outcome::Done, _)) => ExitCode::SUCCESS,
        Ok((Outcome::Interrupted, _)) => interrupt::status(),
        Ok((Outcome::OfRanks(status), _)) => ExitCode::from(status.0),
        Err(error) => failed(&error),
    }
}

/// Parses a command line; prints an error and exits if it is invalid.
fn parse(Line { arguments, file }: Line) -> Command {
    let invalid = |error: clap::Error| -> ! {
        let _ = error.print();
        if let Some(file) = file.as_ref().filter(|_| error.use_stderr()) {
            let _ = writeln!(
                std::io::stderr(),
                "\nnote: keys of the configuration `{}` count as flags",
                file.display()
            );
        }
        std::process::exit(error.exit_code())
    };
    // A negative number is the value of an option, and its range is checked.
    let command = Arguments::command().mut_subcommands(|command| {
        command.mut_args(|option| match option.get_action().takes_values() {
            true => option.allow_negative_numbers(true),
            false => option,
        })
    });
    let matches = command.try_get_matches_from(arguments).unwrap_or_else(|error| invalid(error));
    let parsed = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| invalid(error));
    let mut command = parsed.command;
    if let Command::Finetune(arguments) = &mut command {
        arguments.given = Given::of(&matches);
    }
    command
}

/// Prints an error that ends the program.
fn failed(error: &CliError) -> ExitCode {
    let text = screen::printable(&error.to_string());
    let _ = writeln!(std::io::stderr(), "error: {text}");
    if error.is_of_another_rank() {
        signal_hook::low_level::exit(1);
    }
    ExitCode::FAILURE
}

fn run(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Finetune(arguments) => finetune::run(*arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Chat(arguments) => chat::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Merge(arguments) => export::run(&arguments.into()),
        Command::Export(arguments) => export::run(&arguments),
        Command::CompileWorker(arguments) => arguments.run(),
    }
}

/// How a command ended, if not with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It completed.
    Done,
    /// It was interrupted.
    Interrupted,
    /// The processes of its ranks ended with this status.
    OfRanks(ranks::Status),
}
