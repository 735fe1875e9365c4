//! Where the results of a run go.

use std::path::{Path, PathBuf};

use clap::Args;

use super::up_to;
use crate::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write a report as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Draw the loss as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Write the metrics of each step, and the loss of what is held out, as lines of JSON; those of
    /// a resumed run are appended.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
    /// Write what LoRA trained to this directory at the end, as PEFT reads it.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter_out: Option<PathBuf>,
    /// Print every operation and buffer of the step.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write the step as a Graphviz drawing.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Draw the step as SVG, with its critical path; with --profile also with times.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// Measure where the device time of the step goes, before training; print it as a table and
    /// write it as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Replays over which --profile takes medians.
    #[arg(
        long, value_name = "REPLAYS", default_value_t = 20, requires = "profile",
        value_parser = up_to::<usize>(100_000)
    )]
    pub(crate) profile_replays: usize,
    /// Tokens of text to generate at the end; 0 for none.
    #[arg(
        long, value_name = "TOKENS", default_value_t = 160,
        value_parser = up_to::<usize>(1 << 24)
    )]
    pub(crate) sample: usize,
    /// What the generated text continues; by default the beginning of the data.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// Randomness of the generated text; 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.6)]
    pub(crate) temperature: f32,
}

impl OutputArguments {
    /// Finds out before the run whether its results will have a folder to go to.
    pub(crate) fn require_folders(&self) -> Result<(), CliError> {
        let files = [
            ("the report", &self.report),
            ("the plot", &self.plot),
            ("the metrics", &self.metrics),
            ("the drawing", &self.dot),
            ("the graph", &self.graph),
            ("the profile", &self.profile),
        ];
        for (what, path) in files {
            let Some(path) = path else { continue };
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            if path.is_dir() {
                return Err(CliError::write(what, path, "it is a folder; give a file"));
            }
            if folder.is_some_and(|folder| !folder.is_dir()) {
                return Err(CliError::write(
                    what,
                    path,
                    "there is no such folder; create it first",
                ));
            }
        }
        Ok(())
    }
}
