//! Errors of training data.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Maximum lines that an error lists.
pub(super) const LISTED: usize = 20;

/// Why examples cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error("the data `{}` cannot be read: {source}; give a readable file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The token cache cannot be written.
    #[error(
        "the token cache `{}` cannot be written: {source}; free space on its disk, name another \
         directory, or use no cache", path.display()
    )]
    Cache {
        /// The file or the directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the token cache became shorter while a run used it.
    #[error(
        "the token cache `{}` became shorter while it was in use; start again, which builds it \
         again", path.display()
    )]
    CacheTruncated {
        /// The file.
        path: PathBuf,
    },
    /// The file changed while it was read.
    #[error(
        "the data `{}` changed while it was read; start again when it is complete", path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A packed batch for a step that has no positions.
    #[error(
        "the batch is packed, but the step was described for sequences of one document; describe \
         it with `StepOptions::packed`"
    )]
    Packed,
    /// Some lines are not examples.
    #[error(
        "`{}` has {count} of {lines} lines that cannot be used:{}\nEach line is a JSON object \
         with {forms}",
        path.display(), listed(malformed, *count)
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Lines that are not empty.
        lines: usize,
        /// Lines that cannot be used.
        count: usize,
        /// The first of them: the line number, counted from 1, and the reason.
        malformed: Vec<(usize, String)>,
        /// The fields of the lines that can be used.
        forms: &'static str,
    },
    /// The file is one JSON array instead of JSON Lines.
    #[error(
        "`{}` is one JSON array, but each line must be an object; convert it with \
         `jq -c '.[]' '{0}' > lines.jsonl`",
        path.display()
    )]
    Array {
        /// The file.
        path: PathBuf,
    },
    /// The file is a Parquet file that cannot be used.
    #[error(
        "the Parquet file `{}` cannot be used: {reason}; write it again with columns of strings or \
         messages, compressed with snappy or gzip, or convert it to JSON Lines", path.display()
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A line is longer than the limit.
    #[error(
        "line {line} of `{}` has more than {limit} bytes, which is the limit; split it into \
         several examples",
        path.display()
    )]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
        /// Maximum bytes of a line.
        limit: usize,
    },
    /// The file has more lines or tokens than the limit.
    #[error(
        "`{}` is too large: line {line} exceeds the limit of {limit} {what}; use a part of it",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
        /// Maximum lines or tokens.
        limit: usize,
        /// `lines` or `tokens`.
        what: &'static str,
    },
    /// The tokens of a file do not fit on the disk of the token cache.
    #[error(
        "the tokens of `{}` take about {needed} bytes, but the file system of `{}` has only \
         {capacity} bytes; store them elsewhere, or use a part of the file",
        path.display(), directory.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The directory of tokenized data.
        directory: PathBuf,
        /// Estimated bytes of the tokens: four per token, and one token per four bytes of text,
        /// unless each byte is a token.
        needed: u64,
        /// Bytes of the file system: its size, or its free bytes.
        capacity: u64,
    },
    /// The file has no lines, or only empty ones.
    #[error("`{}` has no examples; each line must be a JSON object", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No example has a token with loss.
    #[error(
        "none of {examples} examples{} has a token with loss in its first {seq} tokens: prompts \
         have no loss, and longer examples are truncated; use longer sequences, shorter prompts, \
         or longer texts or completions",
        path.as_ref().map_or_else(String::new, |path| format!(" of `{}`", path.display()))
    )]
    NoTokensWithLoss {
        /// The file, if the examples are from one.
        path: Option<PathBuf>,
        /// Examples read.
        examples: usize,
        /// Tokens of a sequence.
        seq: usize,
    },
    /// Only assistant messages have loss, but no conversation has one.
    #[error(
        "the {examples} conversations of `{}` have no token with loss: no message has the role \
         `assistant`",
        path.display()
    )]
    NoAssistant {
        /// The file.
        path: PathBuf,
        /// Examples read.
        examples: usize,
    },
    /// A token is not in the vocabulary of the model.
    #[error(
        "token {position} of {part} is {token}, but the vocabulary of the model has {vocab} \
         entries; use the tokenizer of the model or a larger vocabulary. Without a tokenizer, each \
         byte is a token"
    )]
    OutsideVocabulary {
        /// The token.
        token: u32,
        /// Its position, counted from 0.
        position: usize,
        /// The part of the data: the text, or a sequence.
        part: String,
        /// Vocabulary size.
        vocab: usize,
    },
    /// The held-out fraction leaves no training data or no held-out data.
    #[error(
        "holding out a fraction of {fraction} of the {all} {what} of `{}` leaves no training data \
         or no held-out data; give more data or a fraction between 0 and 1",
        path.display()
    )]
    Holdout {
        /// The file.
        path: PathBuf,
        /// The fraction.
        fraction: f64,
        /// Number of examples or tokens.
        all: usize,
        /// `examples` or `tokens`.
        what: &'static str,
    },
    /// A batch or a sequence has no tokens, or more than 32 bits can count.
    #[error(
        "batches of {batch} sequences of {seq} tokens are not possible: both numbers must be at \
         least 1, and their product less than 2^32"
    )]
    Shape {
        /// Sequences of a batch.
        batch: usize,
        /// Tokens of a sequence.
        seq: usize,
    },
    /// The sequences have another length.
    #[error("the examples are in sequences of {found} tokens, but {asked} are asked for")]
    OtherSeq {
        /// Tokens of a sequence.
        found: usize,
        /// The requested tokens of a sequence.
        asked: usize,
    },
}

impl DataError {
    /// Adds the file to an error about its examples.
    pub(super) fn of_file(mut self, file: &Path) -> Self {
        if let Self::NoTokensWithLoss { path, .. } = &mut self {
            *path = Some(file.to_owned());
        }
        self
    }

    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }
}

fn listed(malformed: &[(usize, String)], count: usize) -> String {
    let mut text = String::new();
    for (line, reason) in malformed {
        let _ = write!(text, "\n  line {line}: {reason}");
    }
    if count > malformed.len() {
        let _ = write!(text, "\n  and {} more", count - malformed.len());
    }
    text
}

/// Returns the parser's message with only the column: its line is always 1.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
