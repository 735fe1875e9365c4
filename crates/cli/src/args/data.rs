//! The arguments that say what is learned from or measured.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::SplitOptions;
use retrograph_finetune::data::Lengths;

#[derive(Debug, Args)]
pub(crate) struct DataArguments {
    /// Examples, one in each line: JSON with text, with prompt and completion, or with messages.
    #[arg(long, value_name = "FILE", required_unless_present = "text", conflicts_with = "text")]
    pub(crate) data: Option<PathBuf>,
    /// One text, by the model's tokenizer, or as bytes where it has none.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Put examples behind each other instead of filling each up to a sequence [default: true where
    /// all lines are text].
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
        conflicts_with = "text"
    )]
    packing: Option<bool>,
}

impl DataArguments {
    /// How the data is prepared for sequences of `seq` tokens, with nothing held out.
    pub(crate) fn options(&self, seq: usize) -> SplitOptions {
        let lengths = Lengths::new(seq, 1);
        SplitOptions { lengths, packing: self.packing, holdout: 0.0, seed: 0 }
    }
}

/// How data is used in training.
#[derive(Debug, Args)]
pub(crate) struct UseArguments {
    /// Hold out this fraction of the data, and measure its loss at the end.
    #[arg(long, value_name = "FRACTION")]
    holdout: Option<f64>,
    /// Measure the loss of what is held out after each so many steps, too.
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "holdout")]
    pub(crate) eval_every: u32,
    /// Fill the sequences of a step up to the first of so many lengths that holds them, instead of
    /// to --seq. A program is built for each when it is needed.
    #[arg(
        long, value_name = "LENGTHS", default_value_t = 1, conflicts_with = "text",
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    pub(crate) buckets: u32,
}

impl UseArguments {
    /// `options` with what is held out by `seed`, and the lengths.
    pub(crate) fn options(&self, options: SplitOptions, seed: u64) -> SplitOptions {
        let lengths = Lengths::new(options.lengths.seq(), self.buckets as usize);
        SplitOptions { lengths, holdout: self.holdout.unwrap_or(0.0), seed, ..options }
    }
}
