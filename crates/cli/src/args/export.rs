//! The arguments of `retrograph export` and `retrograph merge`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use retrograph_finetune::WeightType;

use crate::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Export the newest checkpoint in this directory. If its run had --model, give the same one.
    #[arg(long, value_name = "DIR", required_unless_present = "model")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Use the checkpoint with the lowest held-out loss, from a run with --save-best.
    #[arg(long, requires = "checkpoint")]
    pub(crate) best: bool,
    /// Base model, a directory in Hugging Face format.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Merge this LoRA adapter, a directory in PEFT format.
    #[arg(long, value_name = "DIR", requires = "model", conflicts_with = "checkpoint")]
    pub(crate) adapter: Option<PathBuf>,
    /// Write only the LoRA adapter, from --adapter or the checkpoint.
    #[arg(long, conflicts_with = "max_shard_size")]
    pub(crate) adapter_only: bool,
    #[command(flatten)]
    pub(crate) destination: DestinationArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// Directory of the base model, with one safetensors file or shards.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// LoRA adapter, a directory in PEFT format.
    #[arg(long, value_name = "DIR")]
    adapter: PathBuf,
    #[command(flatten)]
    destination: DestinationArguments,
}

/// The destination of a model, and the format of its weights.
#[derive(Debug, Args)]
pub(crate) struct DestinationArguments {
    /// Output directory, which must be empty or not exist; for GGUF, a file that does not exist.
    #[arg(long, value_name = "PATH")]
    pub(crate) out: PathBuf,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: FormatArgument,
    /// Type of the stored weights: f32, bf16, f16, or q8_0 (GGUF only) [default: the type in the
    /// base model, else f32].
    #[arg(long, value_name = "TYPE")]
    pub(crate) dtype: Option<WeightType>,
    /// Maximum size of a weight file in a directory, such as 500MB [default: 5GB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_shard_size: Option<u64>,
}

impl DestinationArguments {
    /// Fails if an option is given that has no effect with the format.
    pub(crate) fn require_format(&self) -> Result<(), CliError> {
        match (self.format, self.max_shard_size) {
            (FormatArgument::Gguf, Some(_)) => {
                let (option, needed) = ("--max-shard-size", "--format hf");
                Err(CliError::Ignored { option, needed })
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArgument {
    /// A Hugging Face directory; in PEFT format for an adapter.
    #[default]
    Hf,
    /// A GGUF file with the tokenizer, for llama.cpp.
    Gguf,
}

impl From<MergeArguments> for ExportArguments {
    fn from(arguments: MergeArguments) -> Self {
        let MergeArguments { model, adapter, destination } = arguments;
        let (model, adapter) = (Some(model), Some(adapter));
        Self { checkpoint: None, best: false, model, adapter, adapter_only: false, destination }
    }
}

/// Parses a size in bytes, with a decimal (KB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB) unit.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("B", 1),
        ("", 1),
    ];
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
    number
        .zip(unit)
        .and_then(|(number, (_, factor))| number.checked_mul(*factor))
        .ok_or_else(|| "give a whole number above 0 with a unit, such as 500MB or 5GB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_are_not_zero() {
        let sizes = ["7", "7B", "500MB", "5gb", "2 GiB"].map(|text| parse_size(text).unwrap());
        assert_eq!(sizes, [7, 7, 500_000_000, 5_000_000_000, 2 << 30]);
        for wrong in ["", "0", "GB", "1.5GB", "5 apples", "-1", "99999999999TB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
