//! Reads data and prints its counts.

use indicatif::{HumanCount, ProgressBar};
use retrograph_finetune::data::Tally;
use retrograph_finetune::{
    CacheState, CacheUse, Data, DataError, DataFile, Error, ModelDirectory, Split, SplitOptions,
    TokenCache, Tokenizer, TrainingConfig,
};

use crate::args::DataArguments;
use crate::error::CliError;
use crate::screen::{fact, style};

/// The note about a model directory without `tokenizer.json`.
pub(crate) const NO_TOKENIZER: &str = "none in the model directory: bytes are tokens";

/// Opens the tokenizer of `base`; without one, bytes are tokens.
pub(crate) fn tokenizer(base: Option<&ModelDirectory>) -> Result<Tokenizer, CliError> {
    let Some(base) = base else { return Ok(Tokenizer::bytes()) };
    let tokenizer = base.tokenizer()?;
    if tokenizer.is_bytes() {
        fact("tokenizer", NO_TOKENIZER);
    } else {
        fact("tokenizer", format!("{} tokens", HumanCount(tokenizer.len() as u64)));
    }
    Ok(tokenizer)
}

/// Reads the data that `arguments` name, with a progress bar; with `dpo`, preferences.
pub(crate) fn read(
    arguments: &DataArguments,
    tokenizer: &Tokenizer,
    options: SplitOptions,
    dpo: bool,
) -> Result<Split, CliError> {
    let bar = ProgressBar::new(0);
    bar.set_style(style("{prefix:<11} {bar:30} {bytes} of {total_bytes}"));
    bar.set_prefix("data");
    let on = &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let cache = arguments.cache();
    let mut split = |cache: Option<&TokenCache>| {
        let file = DataFile { path: arguments.file(), tokenizer, cache };
        match (&arguments.text, dpo) {
            (Some(_), _) => options.text(file, &mut *on),
            (None, true) => options.preferences(file, &mut *on),
            (None, false) => options.jsonl(file, &mut *on),
        }
    };
    let split = match split(cache.as_ref()) {
        // Nobody asked for a cache on this disk.
        Err(Error::Data(error @ (DataError::NoSpace { .. } | DataError::Cache { .. })))
            if arguments.token_cache_dir().is_none() =>
        {
            bar.suspend(|| fact("tokens", format!("in memory: {error}")));
            split(None)
        }
        split => split,
    };
    bar.finish_and_clear();
    let split = split?;
    if let Some(CacheUse { path, state, .. }) = &split.cache {
        let path = path.display();
        fact(
            "tokens",
            match state {
                CacheState::Reused => format!("from {path}"),
                CacheState::Built => format!("written to {path}"),
                CacheState::Rebuilt(reason) => format!("written to {path} again: {reason}"),
                _ => format!("in {path}"),
            },
        );
    }
    Ok(split)
}

/// Checks that all tokens of the data are in the vocabulary of `config`.
pub(crate) fn require_vocab(split: &Split, config: &TrainingConfig) -> Result<(), CliError> {
    let mut parts = std::iter::once(&split.training).chain(&split.held_out);
    Ok(parts.try_for_each(|data| data.require_vocab(config.model.vocab))?)
}

/// Returns the counts of examples; `None` for plain text.
pub(crate) fn tally(data: &Data) -> Option<Tally> {
    match data {
        Data::Text(_) => None,
        Data::Examples(examples) => Some(*examples.tally()),
    }
}

/// Prints the counts of the data.
pub(crate) fn show(split: &Split, tokenizer: &Tokenizer, config: &TrainingConfig) {
    let unit = unit(tokenizer);
    let TrainingConfig { batch, seq, .. } = *config;
    describe("data", &split.training, unit);
    let lengths: Vec<String> = match &split.training {
        Data::Examples(examples) => {
            examples.layout().lengths.all().map(|length| length.to_string()).collect()
        }
        Data::Text(_) => vec![seq.to_string()],
    };
    fact("", format!("{batch} sequences of {} {unit}s per step", lengths.join(" or ")));
    if let Some(held_out) = &split.held_out {
        describe("held out", held_out, unit);
    }
}

/// Returns the name of a token.
pub(crate) fn unit(tokenizer: &Tokenizer) -> &'static str {
    if tokenizer.is_bytes() { "byte" } else { "token" }
}

fn describe(name: &str, data: &Data, unit: &str) {
    let count = |count: usize| HumanCount(count as u64);
    let (tally, layout) = match data {
        Data::Text(text) => return fact(name, format!("{} {unit}s of text", count(text.len()))),
        Data::Examples(examples) => (examples.tally(), examples.layout()),
    };
    let Tally { examples, truncated, split, dropped, sequences, tokens, loss_tokens, packed } =
        *tally;
    let what = if data.has_pairs() { "pairs" } else { "examples" };
    let how = if packed { "packed" } else { "padded" };
    let fill = 100.0 * tokens as f64 / (sequences * layout.lengths.seq()) as f64;
    let (examples, sequences) = (count(examples), count(sequences));
    fact(name, format!("{examples} {what} in {sequences} sequences, {how}, {fill:.1} % full"));
    fact("", format!("{} of {} {unit}s have loss", count(loss_tokens), count(tokens)));
    if truncated > 0 {
        let truncated = count(truncated);
        fact("", format!("{truncated} examples were truncated to a sequence"));
    }
    if split > 0 {
        let split = count(split);
        fact("", format!("{split} texts longer than a sequence were split"));
    }
    if dropped > 0 {
        fact("", format!("{} {what} without a token with loss were dropped", count(dropped)));
    }
}
