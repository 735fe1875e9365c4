//! What can be wrong with the examples of a file.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Lines that an error lists.
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
    /// Lines say something else than they must.
    #[error(
        "`{}` has {count} of {lines} lines that cannot be used:{}\nEach line is an object of JSON \
         with `text`, with `prompt` and `completion`, or with `messages`",
        path.display(), listed(malformed, *count)
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// All lines that are not empty.
        lines: usize,
        /// How many of them cannot be used.
        count: usize,
        /// The numbers of the first ones, counted from 1, and what is wrong with each.
        malformed: Vec<(usize, String)>,
    },
    /// The file is one array instead of lines.
    #[error(
        "`{}` is one array of JSON, but each line must be an object; convert it by \
         `jq -c '.[]' {0} > lines.jsonl`",
        path.display()
    )]
    Array {
        /// The file.
        path: PathBuf,
    },
    /// A line is longer than is read.
    #[error(
        "line {line} of `{}` has more than {limit} bytes, which is the limit; divide it into \
         several examples",
        path.display()
    )]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The most bytes of a line.
        limit: usize,
    },
    /// The file has more lines or tokens than a run can use.
    #[error(
        "`{}` is too large: up to line {line} it has more than {limit} {what}, which is the limit; \
         use a part of it",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The most lines or tokens.
        limit: usize,
        /// Which of them.
        what: &'static str,
    },
    /// The file has no lines, or only empty ones.
    #[error("`{}` has no examples; each line must be an object of JSON", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No example has a token that is to be learned.
    #[error(
        "none of {examples} examples has anything left to learn in sequences of {seq} tokens: \
         nothing is learned of a prompt, and what is longer than a sequence loses its end; use \
         longer sequences, shorter prompts, or longer texts or completions"
    )]
    NothingToLearn {
        /// Examples read.
        examples: usize,
        /// Tokens of a sequence.
        seq: usize,
    },
    /// Conversations in which nobody says what is learned.
    #[error(
        "nothing can be learned from {examples} conversations: no message has the role `assistant`"
    )]
    NoAssistant {
        /// Examples read.
        examples: usize,
    },
    /// A token that the model does not know.
    #[error(
        "token {position} of {part} is {token}, but the vocabulary of the model has {vocab} \
         entries, numbered from 0; use the tokenizer of the model or a larger vocabulary. Without \
         a tokenizer, tokens are bytes"
    )]
    OutsideVocabulary {
        /// The token.
        token: u32,
        /// Where it is, counted from 0.
        position: usize,
        /// In which part of the data.
        part: String,
        /// Entries of the token table.
        vocab: usize,
    },
    /// What is held out would be nothing or everything.
    #[error(
        "a fraction of {fraction} held out of {all} {what} leaves nothing to learn from or nothing \
         to measure; give more data or a fraction between 0 and 1"
    )]
    Holdout {
        /// The fraction that was to be held out.
        fraction: f64,
        /// What there is.
        all: usize,
        /// What that is.
        what: &'static str,
    },
    /// The sequences were made for another length.
    #[error("the examples were laid out in sequences of {found} tokens, and {asked} are asked for")]
    OtherSeq {
        /// Tokens of their sequences.
        found: usize,
        /// Tokens that were asked for.
        asked: usize,
    },
}

impl DataError {
    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }
}

fn listed(malformed: &[(usize, String)], count: usize) -> String {
    let mut text = String::new();
    for (line, why) in malformed {
        let _ = write!(text, "\n  line {line}: {why}");
    }
    if count > malformed.len() {
        let _ = write!(text, "\n  and {} more", count - malformed.len());
    }
    text
}
