//! The error of parsing a named choice.

/// Error for a text that is none of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}; give {choices}")]
pub struct UnknownChoice {
    /// The text.
    pub text: String,
    /// The kind of choice, with an article.
    pub kind: &'static str,
    /// The choices.
    pub choices: String,
}

impl UnknownChoice {
    /// Returns the error for `text`.
    pub(crate) fn new(text: &str, kind: &'static str, choices: impl Into<String>) -> Self {
        Self { text: text.to_owned(), kind, choices: choices.into() }
    }
}
