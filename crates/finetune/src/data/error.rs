//! What can be wrong with the examples of a file.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Lines that an error lists.
const LISTED: usize = 20;

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
        "`{}` has {} of {lines} lines that cannot be used:{}\nEach line is an object of JSON with \
         `text`, with `prompt` and `completion`, or with `messages`",
        path.display(), malformed.len(), listed(malformed)
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// All lines that are not empty.
        lines: usize,
        /// The numbers of the lines, counted from 1, and what is wrong with each.
        malformed: Vec<(usize, String)>,
    },
    /// The file has no lines, or only empty ones.
    #[error("`{}` has no examples; each line must be an object of JSON", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No example has a token that is to be learned.
    #[error(
        "none of {examples} examples has anything left to learn in sequences of {seq} tokens; use \
         a longer --seq, or data with longer texts or completions"
    )]
    NothingToLearn {
        /// Examples read.
        examples: usize,
        /// Tokens of a sequence.
        seq: usize,
    },
    /// What is held out would be nothing or everything.
    #[error(
        "--holdout {fraction} of {all} {what} leaves nothing to learn from or nothing to measure; \
         give more data or a fraction between 0 and 1"
    )]
    Holdout {
        /// The fraction that was to be held out.
        fraction: f64,
        /// What there is.
        all: usize,
        /// What that is.
        what: &'static str,
    },
    /// A token is not in the vocabulary of the model.
    #[error(
        "the data has the {unit} {token}, but the vocabulary of the model has {vocab} entries, the \
         last of which is {}; use a larger vocabulary, or other data", vocab.saturating_sub(1)
    )]
    OutsideVocabulary {
        /// What a token is: a byte or a token.
        unit: &'static str,
        /// The token.
        token: u32,
        /// Entries of the token table.
        vocab: usize,
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

fn listed(malformed: &[(usize, String)]) -> String {
    let mut text = String::new();
    for (line, why) in malformed.iter().take(LISTED) {
        let _ = write!(text, "\n  line {line}: {why}");
    }
    if malformed.len() > LISTED {
        let _ = write!(text, "\n  and {} more", malformed.len() - LISTED);
    }
    text
}
