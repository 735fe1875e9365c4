//! The arguments for data.

use std::path::{Path, PathBuf};

use clap::Args;
use retrograph_finetune::data::Lengths;
use retrograph_finetune::files::require_writable;
use retrograph_finetune::{SplitOptions, TokenCache};
use retrograph_runtime::modules::CacheDir;

use super::cache::DirChoice;
use crate::error::CliError;
use crate::screen::fact;

#[derive(Debug, Args)]
pub(crate) struct DataArguments {
    /// Examples as JSON Lines or Parquet: each line or row has `text`, `prompt` and `completion`,
    /// `messages`, or the fields of ShareGPT or Alpaca.
    #[arg(long, value_name = "FILE", required_unless_present = "text", conflicts_with = "text")]
    pub(crate) data: Option<PathBuf>,
    /// Plain-text file. Without a tokenizer, each byte is a token.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Pack several examples into each sequence instead of padding each one. Attention and
    /// positions stay within each example [default: true, or false with --buckets above 1].
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
        conflicts_with = "text"
    )]
    packing: Option<bool>,
    /// Directory for tokenized data, which later runs map into memory instead of tokenizing again,
    /// or none to keep the tokens in memory [default: `tokens` in the user's cache directory for
    /// files of at least 16 MiB, else none].
    #[arg(long, value_name = "DIR")]
    token_cache: Option<DirChoice>,
}

/// Smaller files are tokenized in seconds.
const CACHED_BYTES: u64 = 16 << 20;

impl DataArguments {
    /// Returns the data file.
    pub(crate) fn file(&self) -> &Path {
        // The parser requires one of the two.
        self.text.as_deref().or(self.data.as_deref()).unwrap_or_else(|| "".as_ref())
    }

    /// Returns the token cache, if there is one.
    pub(crate) fn cache(&self) -> Option<TokenCache> {
        match &self.token_cache {
            Some(DirChoice::Nowhere) => None,
            Some(DirChoice::At(path)) => Some(TokenCache::at(path)),
            None => {
                let found = std::fs::metadata(self.file()).ok()?;
                if !found.is_file() || found.len() < CACHED_BYTES {
                    return None;
                }
                default_cache()
                    .inspect_err(|reason| fact("tokens", format!("in memory: {reason}")))
                    .ok()
            }
        }
    }

    /// Returns the directory given for tokenized data, if any.
    pub(crate) fn token_cache_dir(&self) -> Option<&Path> {
        self.token_cache.as_ref().and_then(DirChoice::path)
    }

    /// Whether examples are packed; by default, unless there are several `buckets`.
    pub(crate) fn packs(&self, buckets: u32) -> bool {
        self.text.is_none() && self.packing.unwrap_or(buckets <= 1)
    }

    /// Returns options for sequences of `seq` tokens, without held-out data.
    pub(crate) fn options(&self, seq: usize) -> SplitOptions {
        let mut options = SplitOptions::new(Lengths::new(seq, 1));
        options.packing = self.packing;
        options
    }
}

/// Returns the cache in the user's cache directory, if files can be written there.
fn default_cache() -> Result<TokenCache, String> {
    let user = CacheDir::user().map_err(|error| error.to_string())?;
    let path = user.path().join("tokens");
    let writable = std::fs::create_dir_all(&path).and_then(|()| require_writable(&path));
    let failed = |error| format!("files cannot be written to {}: {error}", path.display());
    writable.map_err(failed)?;
    Ok(TokenCache::at(path))
}

/// The arguments for how training uses the data.
#[derive(Debug, Args)]
pub(crate) struct HoldoutArguments {
    /// Fraction of the data to hold out, between 0 and 1. Its loss is measured after the last step
    /// [default: 0].
    #[arg(long, value_name = "FRACTION")]
    holdout: Option<f64>,
    /// Steps between measurements of the held-out loss; 0 measures it only after the last step.
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "holdout")]
    pub(crate) eval_every: u32,
    /// Keep the checkpoint with the lowest held-out loss, and write --adapter-out and --model-out
    /// from it instead of from the last step.
    #[arg(long, requires = "checkpoint", requires = "holdout", conflicts_with = "discard")]
    pub(crate) save_best: bool,
    /// End training after this many measurements without a new lowest held-out loss, at least 1.
    /// Needs --eval-every.
    #[arg(
        long, value_name = "MEASUREMENTS", requires = "holdout",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) early_stop: Option<u32>,
    /// Number of sequence lengths (buckets), 1 to 16. Each step is padded to the shortest length
    /// that fits instead of to --seq; each length needs its own CUDA graph.
    #[arg(
        long, value_name = "LENGTHS", default_value_t = 1, conflicts_with = "text",
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    pub(crate) buckets: u32,
}

impl HoldoutArguments {
    /// Whether data is held out.
    pub(crate) fn holds_out(&self) -> bool {
        self.holdout.is_some_and(|fraction| fraction > 0.0)
    }

    /// Fails if an option needs a held-out loss that is not measured, or for early stopping only
    /// at the end.
    pub(crate) fn require_measurements(&self) -> Result<(), CliError> {
        let uses = [
            ("--eval-every", self.eval_every > 0),
            ("--save-best", self.save_best),
            ("--early-stop", self.early_stop.is_some()),
        ];
        match uses.into_iter().find(|(_, used)| *used && !self.holds_out()) {
            Some((option, _)) => Err(CliError::Ignored { option, needed: "--holdout above 0" }),
            None if self.early_stop.is_some() && self.eval_every == 0 => {
                let (option, needed) = ("--early-stop", "--eval-every above 0");
                Err(CliError::Ignored { option, needed })
            }
            None => Ok(()),
        }
    }

    /// Adds the held-out fraction, the `seed` that selects it, and the sequence lengths to
    /// `options`.
    pub(crate) fn options(&self, mut options: SplitOptions, seed: u64) -> SplitOptions {
        options.lengths = Lengths::new(options.lengths.seq(), self.buckets as usize);
        options.holdout = self.holdout.unwrap_or(0.0);
        options.seed = seed;
        options
    }
}
