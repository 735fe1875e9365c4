//! The arguments for LoRA.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use retrograph_finetune::{LoraConfig, LoraLayers, LoraPatterns, LoraTargets};

use super::ModeArgument;
use crate::error::CliError;

/// Default of `--alpha`.
const DEFAULT_ALPHA: f32 = 32.0;

#[derive(Debug, Args)]
pub(crate) struct LoraArguments {
    /// Rank of the LoRA matrices, 1 to 65536 [default: 8 for --preset tiny, else 16].
    #[arg(long)]
    rank: Option<usize>,
    /// LoRA alpha: updates are scaled by alpha / rank [default: 32].
    #[arg(long)]
    alpha: Option<f32>,
    /// Projections with a LoRA update: a list of q,k,v,o,gate,up,down, or all [default: q,v].
    #[arg(long, value_name = "NAMES")]
    lora_targets: Option<LoraTargets>,
    /// Layers with LoRA updates: numbers from 0 and ranges, such as 0-7,12, or all [default: all].
    #[arg(long, value_name = "LAYERS")]
    lora_layers: Option<LoraLayers>,
    /// Ranks of individual modules, such as q_proj=8,layers.3.mlp.up_proj=32: the first name or
    /// regular expression that matches the end of a module's name applies.
    #[arg(long, value_name = "NAME=RANK", value_parser = ranks)]
    rank_pattern: Option<LoraPatterns>,
    /// Alphas of individual modules, in the form of --rank-pattern.
    #[arg(long, value_name = "NAME=ALPHA", value_parser = alphas)]
    alpha_pattern: Option<LoraPatterns>,
    /// Scale LoRA updates by alpha / sqrt(rank) instead (rsLoRA).
    #[arg(long)]
    rslora: bool,
    /// Also train a magnitude for each row of the adapted weights (DoRA).
    #[arg(long)]
    dora: bool,
    /// Dropout probability for the inputs of LoRA updates, at least 0 and below 1 [default: 0].
    #[arg(long, value_name = "PROBABILITY")]
    lora_dropout: Option<f32>,
    /// Also train both norms of each layer [default: true in bench, else false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    train_norms: Option<bool>,
    /// Also train the token embeddings, and with them the output projection of a tied model.
    #[arg(long)]
    train_embeddings: bool,
    /// Also train the output projection of a model whose embeddings are not tied.
    #[arg(long)]
    train_head: bool,
    /// Start from this LoRA adapter, a directory in PEFT format, which sets all other LoRA options.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "rank", "alpha", "lora_targets", "lora_layers", "rank_pattern", "alpha_pattern", "rslora",
        "dora", "lora_dropout", "train_norms", "train_embeddings", "train_head",
    ])]
    pub(crate) adapter: Option<PathBuf>,
}

impl LoraArguments {
    /// Fails if an option is given that has no effect with `mode`. Without a `mode`, LoRA matrices
    /// are trained only if there is an adapter.
    pub(crate) fn require_mode(&self, mode: Option<ModeArgument>) -> Result<(), CliError> {
        let full = mode.unwrap_or_default() == ModeArgument::Full;
        if self.adapter.is_some() {
            // The parser refuses other LoRA options.
            return if mode.is_some() && full { Err(CliError::AdapterOfFull) } else { Ok(()) };
        }
        let given = [
            ("--rank", self.rank.is_some()),
            ("--alpha", self.alpha.is_some()),
            ("--lora-targets", self.lora_targets.is_some()),
            ("--lora-layers", self.lora_layers.is_some()),
            ("--rank-pattern", self.rank_pattern.is_some()),
            ("--alpha-pattern", self.alpha_pattern.is_some()),
            ("--rslora", self.rslora),
            ("--dora", self.dora),
            ("--lora-dropout", self.lora_dropout.is_some()),
            ("--train-norms", self.train_norms.is_some()),
            ("--train-embeddings", self.train_embeddings),
            ("--train-head", self.train_head),
        ];
        match given.into_iter().find(|(_, given)| full && *given) {
            None => Ok(()),
            Some((flag, _)) => Err(CliError::NeedsLora(flag)),
        }
    }

    /// Returns the configuration; `rank` and `norms` are the defaults.
    pub(crate) fn config(&self, rank: usize, norms: bool) -> LoraConfig {
        let [ranks, alphas] =
            [self.rank_pattern, self.alpha_pattern].map(|given| given.unwrap_or_default());
        LoraConfig {
            rank: self.rank.unwrap_or(rank),
            alpha: self.alpha.unwrap_or(DEFAULT_ALPHA),
            targets: self.lora_targets.unwrap_or(LoraTargets::QV),
            layers: self.lora_layers.unwrap_or(LoraLayers::ALL),
            rslora: self.rslora,
            dora: self.dora,
            norms: self.train_norms.unwrap_or(norms),
            embeddings: self.train_embeddings,
            head: self.train_head,
            dropout: self.lora_dropout.unwrap_or(0.0),
            patterns: ranks.with_alphas(alphas),
        }
    }
}

/// Reads the value of `--rank-pattern`.
fn ranks(text: &str) -> Result<LoraPatterns, String> {
    LoraPatterns::new(patterns(text)?, []).map_err(|error| error.to_string())
}

/// Reads the value of `--alpha-pattern`.
fn alphas(text: &str) -> Result<LoraPatterns, String> {
    LoraPatterns::new([], patterns(text)?).map_err(|error| error.to_string())
}

/// Reads patterns with values, written as `q_proj=8,up_proj=32`. A pattern can have commas.
fn patterns<T: FromStr>(text: &str) -> Result<Vec<(String, T)>, String> {
    let (mut list, mut rest) = (Vec::new(), String::new());
    for part in text.split(',') {
        rest.push_str(part);
        let split = rest.rsplit_once('=');
        match split.and_then(|(name, value)| Some((name.trim(), value.trim().parse().ok()?))) {
            Some((name, value)) => {
                list.push((name.to_owned(), value));
                rest.clear();
            }
            None => rest.push(','),
        }
    }
    match rest.trim_end_matches(',') {
        "" if !list.is_empty() => Ok(list),
        rest => Err(format!("`{rest}` has no number; give names with values, such as q_proj=8")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        lora: LoraArguments,
    }

    fn config(line: &[&str], norms: bool) -> LoraConfig {
        let line = std::iter::once("program").chain(line.iter().copied());
        Line::parse_from(line).lora.config(8, norms)
    }

    #[test]
    fn queries_and_values_are_the_default_and_norms_depend_on_the_command() {
        assert_eq!(config(&[], false), LoraConfig::new(8, 32.0));
        assert!(config(&[], true).norms);
        assert!(config(&["--train-norms"], false).norms);
        assert!(!config(&["--train-norms", "false"], true).norms);
    }

    #[test]
    fn every_option_can_be_set() {
        let line =
            ["--rank=4", "--alpha=8", "--lora-targets=k,down", "--rslora", "--lora-dropout=.1"];
        let targets = "k,down".parse().unwrap();
        let dropout = 0.1;
        let expected = LoraConfig { targets, rslora: true, dropout, ..LoraConfig::new(4, 8.0) };
        assert_eq!(config(&line, false), expected);
        let expected = LoraConfig { dora: true, ..LoraConfig::new(8, 32.0) };
        assert_eq!(config(&["--dora"], false), expected);
        let saved = config(&["--train-embeddings", "--train-head"], false);
        assert_eq!((saved.embeddings, saved.head, saved.norms), (true, true, false));
        let wrong = Line::try_parse_from(["program", "--lora-targets", "head"]).unwrap_err();
        assert!(wrong.to_string().contains("q,k,v,o,gate,up,down"), "{wrong}");
    }

    #[test]
    fn options_without_an_effect_are_refused() {
        let required = |line: &[&str], mode| {
            let line = Line::parse_from([&["program"], line].concat());
            line.lora.require_mode(mode).map_err(|error| error.to_string())
        };
        let (full, lora) = (Some(ModeArgument::Full), Some(ModeArgument::Lora));
        let error = required(&["--adapter", "a"], full).unwrap_err();
        assert!(error.contains("--adapter is for --mode lora"), "{error}");
        for mode in [None, lora] {
            assert_eq!(required(&["--adapter", "a"], mode), Ok(()));
        }
        for mode in [None, full] {
            assert!(required(&["--rank", "4"], mode).unwrap_err().contains("--rank"));
            assert_eq!(required(&[], mode), Ok(()));
        }
        assert_eq!(required(&["--rank", "4"], lora), Ok(()));
    }

    #[test]
    fn layers_and_patterns_are_lists() {
        let line = [
            "--lora-layers=1-3,7",
            r"--rank-pattern=layers\.\d{1,2}\.up_proj=4,q_proj=2",
            "--alpha-pattern=o_proj=-1.5",
        ];
        let lora = config(&line, false);
        assert_eq!(lora.layers.to_string(), "1-3,7");
        let ranks: Vec<_> = lora.patterns.ranks().collect();
        assert_eq!(ranks, [(r"layers\.\d{1,2}\.up_proj", 4), ("q_proj", 2)]);
        assert_eq!(lora.patterns.alphas().collect::<Vec<_>>(), [("o_proj", -1.5)]);
        for wrong in ["--rank-pattern=q_proj", "--rank-pattern=q_proj=2,k_proj", "--rank-pattern="]
        {
            let error = Line::try_parse_from(["program", wrong]).unwrap_err().to_string();
            assert!(error.contains("has no number"), "{error}");
        }
        let error = Line::try_parse_from(["program", "--alpha-pattern=(q=2"]).unwrap_err();
        assert!(error.to_string().contains("`(q` is not a regular expression"), "{error}");
    }
}
