//! The arguments that say what is learned from or measured.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::SplitOptions;

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
        SplitOptions { seq, packing: self.packing, holdout: 0.0, seed: 0 }
    }
}

#[derive(Debug, Args)]
pub(crate) struct HoldoutArguments {
    /// Hold out this fraction of the data, and measure its loss at the end.
    #[arg(long, value_name = "FRACTION")]
    holdout: Option<f64>,
    /// Measure the loss of what is held out after each so many steps, too.
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "holdout")]
    pub(crate) eval_every: u32,
}

impl HoldoutArguments {
    /// `options` with what is held out by `seed`.
    pub(crate) fn options(&self, options: SplitOptions, seed: u64) -> SplitOptions {
        SplitOptions { holdout: self.holdout.unwrap_or(0.0), seed, ..options }
    }
}
