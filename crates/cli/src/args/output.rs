//! The arguments for the results of a run.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{GeneratorOptions, WeightType};
use retrograph_runtime::profile::MAX_REPLAYS;

use super::{one_to, parse_size, up_to};
use crate::outputs::Output;

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write a report of the run to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Draw the loss curve to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Write the metrics of each step and the held-out losses to this file as JSON Lines. A resumed
    /// run appends.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
    /// Write the metrics as an event file for TensorBoard to this directory. Each run adds a file.
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorboard: Option<PathBuf>,
    /// Write the trained LoRA adapter to this directory at the end, in PEFT format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter_out: Option<PathBuf>,
    /// Write the trained model to this directory at the end, in Hugging Face format, with LoRA
    /// merged; the directory must be empty or not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) model_out: Option<PathBuf>,
    /// Write no weights: the trained model is lost at the end. A run without --discard,
    /// --checkpoint, --adapter-out and --model-out writes its adapter or model to the new directory
    /// retrograph-out.
    #[arg(long, conflicts_with_all = ["checkpoint", "adapter_out", "model_out"])]
    pub(crate) discard: bool,
    /// Type of the weights of --model-out: f32, bf16 or f16 [default: the type in the base model,
    /// else f32].
    #[arg(long, value_name = "TYPE", requires = "model_out", conflicts_with = "discard")]
    pub(crate) model_dtype: Option<WeightType>,
    /// Maximum size of a weight file in --model-out, such as 500MB [default: 5GB].
    #[arg(
        long, value_name = "SIZE", requires = "model_out", value_parser = parse_size,
        conflicts_with = "discard"
    )]
    pub(crate) max_shard_size: Option<u64>,
    /// Print every operation and buffer of the training step.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write the graph of the step to this Graphviz DOT file.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Draw the graph of the step to this SVG file, with its critical path, and with times if
    /// --profile is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// Profile the operations of the step before training; print a table and write it to this JSON
    /// file.
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Profile the operations of the step before training, and write their schedule on the streams
    /// of the graph to this JSON file, for Perfetto (ui.perfetto.dev).
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Replays per measurement of --profile and --trace, 1 to 10000; times are medians.
    #[arg(
        long, value_name = "REPLAYS", default_value_t = 20,
        value_parser = one_to::<usize>(MAX_REPLAYS as u64)
    )]
    pub(crate) profile_replays: usize,
    /// Tokens of sample text to generate at the end, up to 16776960; 0 for none.
    #[arg(
        long, value_name = "TOKENS", default_value_t = 160,
        value_parser = up_to::<usize>(GeneratorOptions::MAX_LENGTH as u64)
    )]
    pub(crate) sample: usize,
    /// Prompt of the sample text [default: the beginning of the data].
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// Sampling temperature of the sample text, at least 0; 0 takes the most likely token.
    #[arg(long, default_value_t = 0.6)]
    pub(crate) temperature: f32,
}

impl OutputArguments {
    /// Returns the arguments of ranks other than 0, which write no files. Profiling needs all
    /// ranks, so its options stay.
    pub(crate) fn of_other_ranks(self) -> Self {
        let Self { profile, trace, profile_replays, prompt, temperature, .. } = self;
        Self {
            report: None,
            plot: None,
            metrics: None,
            tensorboard: None,
            adapter_out: None,
            model_out: None,
            discard: true,
            model_dtype: None,
            max_shard_size: None,
            explain: false,
            dot: None,
            graph: None,
            profile,
            trace,
            profile_replays,
            sample: 0,
            prompt,
            temperature,
        }
    }

    /// Whether the step is profiled.
    pub(crate) fn profiles(&self) -> bool {
        self.profile.is_some() || self.trace.is_some()
    }

    /// Returns the files that a run writes, and the text with which each begins.
    pub(crate) fn files(&self) -> Vec<Output<'_>> {
        let kinds: [(&'static str, &Option<PathBuf>, &'static str); 7] = [
            ("the report", &self.report, r#"{"device":"#),
            ("the plot", &self.plot, "<svg"),
            ("the metrics", &self.metrics, r#"{"step":"#),
            ("the drawing", &self.dot, "digraph"),
            ("the graph", &self.graph, "<svg"),
            ("the profile", &self.profile, r#"{"subject":"#),
            ("the trace", &self.trace, r#"{"displayTimeUnit":"#),
        ];
        let mut files = Vec::new();
        for (what, path, begins) in kinds {
            files.extend(path.as_deref().map(|path| Output { what, path, begins }));
        }
        files
    }
}
