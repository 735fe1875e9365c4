//! Errors of model directories.

use std::path::{Path, PathBuf};

/// Why a model directory or a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A file cannot be read.
    #[error(
        "`{}` cannot be read: {source}; a model directory holds config.json and model.safetensors, \
         or model.safetensors.index.json with the files that it names",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such directory.
    #[error(
        "there is no model directory `{}`; nothing is downloaded, so download the model first, for \
         example with `hf download`",
        path.display()
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A configuration without weights cannot be read.
    #[error("`{}` cannot be read: {source}; give the config.json of a model", path.display())]
    ReadConfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A tensor cannot be read.
    #[error("the tensor `{tensor}` in `{}` cannot be read: {source}", path.display())]
    ReadTensor {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A JSON file has an unexpected value.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The defect, with the field or the position.
        reason: String,
    },
    /// The model needs a feature that is not supported.
    #[error("`{}`: {field} is {value}, but only {supported} is supported", path.display())]
    Unsupported {
        /// The configuration.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The supported value.
        supported: &'static str,
    },
    /// A weight file is truncated, altered or has another format.
    #[error("the weights `{}` are damaged: {reason}; download the file again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A tensor of the index is not in its file, or a tensor of the model is in no file.
    #[error("the tensor `{tensor}` is missing in `{}`; the model needs {needs}", path.display())]
    Missing {
        /// The tensor.
        tensor: String,
        /// The file or directory.
        path: PathBuf,
        /// The required shape, or the file that names it.
        needs: String,
    },
    /// A tensor does not belong to the model.
    #[error(
        "the tensor `{tensor}` in `{}` does not belong to a model with this config.json; use the \
         config.json of these weights",
        path.display()
    )]
    Extra {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
    },
    /// Two files hold the same tensor.
    #[error(
        "the tensor `{tensor}` is in `{}` and in `{}`; remove one of the files",
        first.display(), second.display()
    )]
    Twice {
        /// The tensor.
        tensor: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The shape of a tensor contradicts the configuration.
    #[error(
        "the tensor `{tensor}` in `{}` has the shape {found:?} instead of {expected:?}; use the \
         weights of this config.json",
        path.display()
    )]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Its shape.
        found: Vec<usize>,
        /// The shape of the configuration.
        expected: Vec<usize>,
    },
    /// The dtype of a tensor is not supported.
    #[error(
        "the tensor `{tensor}` in `{}` has the dtype {found}; F32, F16 and BF16 are supported",
        path.display()
    )]
    ElementType {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Its dtype.
        found: String,
    },
    /// A tokenizer cannot be read.
    #[error(
        "`{}` cannot be read: {source}; save the tokenizer in the model directory, for example \
         with `save_pretrained` of `transformers`",
        path.display()
    )]
    ReadTokenizer {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Without a tokenizer each byte is a token, but the vocabulary is smaller than 256.
    #[error(
        "there is no `{}`, but the vocabulary of {vocab} tokens is too small for bytes as tokens; \
         save the tokenizer in the model directory",
        path.display()
    )]
    NoTokenizer {
        /// The missing file.
        path: PathBuf,
        /// Vocabulary size of the model.
        vocab: usize,
    },
    /// The tokenizer has more tokens than the model.
    #[error(
        "`{}` has the token `{token}` with the id {id}, but config.json has a vocabulary of \
         {vocab} tokens; use the tokenizer of this model",
        path.display()
    )]
    TokenBeyond {
        /// The tokenizer.
        path: PathBuf,
        /// The token with the largest id.
        token: String,
        /// Its id.
        id: u32,
        /// Vocabulary size of the model.
        vocab: usize,
    },
    /// A text cannot be encoded.
    #[error("the text cannot be encoded as tokens: {reason}")]
    Encode {
        /// The defect.
        reason: String,
    },
    /// A long text cannot be encoded in pieces.
    #[error(
        "the text cannot be encoded in pieces: the {limit} bytes from byte {position} cannot be \
         split without changing their tokens; break long runs of characters into lines"
    )]
    NotDivisible {
        /// The first byte that was not encoded, counted from 0.
        position: usize,
        /// Bytes of the largest piece.
        limit: usize,
    },
    /// Messages need a chat template, but the tokenizer has none.
    #[error(
        "the tokenizer has no chat template, which messages need; use a model with one in \
         tokenizer_config.json or chat_template.jinja"
    )]
    NoChatTemplate,
    /// The chat template fails on a conversation.
    #[error("the chat template fails on the messages: {reason}")]
    Chat {
        /// The error of the template.
        reason: String,
    },
    /// The chat template exceeds a limit.
    #[error("the chat template `{}` exceeds a limit: {limit}", path.display())]
    TemplateLimit {
        /// The file with the template.
        path: PathBuf,
        /// The limit.
        limit: String,
    },
    /// The sequences are longer than the context of the model.
    #[error(
        "{seq} tokens exceed the context of the model, {positions} positions; use fewer tokens"
    )]
    TooLong {
        /// Tokens of a sequence.
        seq: usize,
        /// Positions of the model.
        positions: usize,
    },
}

impl HubError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn read_tokenizer(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::ReadTokenizer { path, source }
    }

    pub(crate) fn encode(reason: impl ToString) -> Self {
        Self::Encode { reason: reason.to_string() }
    }

    pub(crate) fn json(path: &Path, reason: impl ToString) -> Self {
        Self::Json { path: path.to_owned(), reason: shortened(reason.to_string()) }
    }

    pub(super) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: shortened(reason.to_string()) }
    }
}

/// Maximum length of a reason in characters: libraries quote whole values of a file.
const REASON_CHARACTERS: usize = 2000;

/// Truncates a long reason.
fn shortened(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_CHARACTERS) {
        reason.truncate(end);
        reason.push('…');
    }
    reason
}
