//! Where the results of a run go.

use std::path::PathBuf;

use clap::Args;

use super::up_to;
use crate::outputs::Output;

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
    /// The files that a run writes, with what each begins with.
    pub(crate) fn files(&self) -> Vec<Output<'_>> {
        let kinds = [
            ("the report", &self.report, r#"{"device":"#),
            ("the plot", &self.plot, "<svg"),
            ("the metrics", &self.metrics, r#"{"step":"#),
            ("the drawing", &self.dot, "digraph"),
            ("the graph", &self.graph, "<svg"),
            ("the profile", &self.profile, r#"{"subject":"#),
        ];
        let mut files = Vec::new();
        for (what, path, begins) in kinds {
            files.extend(path.as_deref().map(|path| Output { what, path, begins }));
        }
        files
    }
}
