//! What can be wrong with a model directory.

use std::path::{Path, PathBuf};

/// Why a model directory cannot be used.
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
    /// The elements of a tensor cannot be read.
    #[error("the tensor `{tensor}` in `{}` cannot be read: {source}", path.display())]
    ReadTensor {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A JSON file says something else than it must.
    #[error("`{}` cannot be used: {why}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the field or the place.
        why: String,
    },
    /// The model has a part that the passes do not compute.
    #[error("`{}`: {field} is {value}, which is not supported; {supported} is", path.display())]
    Unsupported {
        /// The configuration.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What can be used.
        supported: &'static str,
    },
    /// A weight file is truncated, altered or something else.
    #[error("the weights `{}` are damaged: {why}; download the file again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A tensor that the index promises is not in the file that it names, or in none.
    #[error("the tensor `{tensor}` is missing in `{}`; the model needs {needs}", path.display())]
    Missing {
        /// The tensor.
        tensor: String,
        /// The file or directory.
        path: PathBuf,
        /// The shape it must have, or who names it.
        needs: String,
    },
    /// A tensor belongs to nothing in the model.
    #[error(
        "the tensor `{tensor}` in `{}` belongs to nothing in a model of this config.json; it may \
         be of another architecture",
        path.display()
    )]
    Extra {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
    },
    /// Two files hold the same tensor.
    #[error("the tensor `{tensor}` is in `{}` and in `{}`", first.display(), second.display())]
    Twice {
        /// The tensor.
        tensor: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A tensor has another shape than the configuration says.
    #[error("the tensor `{tensor}` in `{}` is {found:?}, not {expected:?}", path.display())]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// Its dimensions.
        found: Vec<usize>,
        /// Those that the configuration says.
        expected: Vec<usize>,
    },
    /// A tensor has elements of a type that is not read.
    #[error(
        "the tensor `{tensor}` in `{}` has elements of type {found}; F32, F16 and BF16 are read",
        path.display()
    )]
    ElementType {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// The type of its elements.
        found: String,
    },
    /// A directory was to have a tokenizer.
    #[error(
        "`{}` cannot be read: {source}; save the tokenizer beside the model, as save_pretrained of \
         `transformers` does",
        path.display()
    )]
    ReadTokenizer {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Without a tokenizer bytes are tokens, and the model does not know all of them.
    #[error(
        "there is no `{}`, and the model knows {vocab} tokens, which are too few for bytes; save \
         the tokenizer beside the model",
        path.display()
    )]
    NoTokenizer {
        /// The file that is missing.
        path: PathBuf,
        /// Tokens of the model.
        vocab: usize,
    },
    /// The tokenizer belongs to a model with more tokens.
    #[error(
        "`{}` has the token `{token}` with the number {id}, and the model of config.json knows the \
         numbers below {vocab}: the files are of different models",
        path.display()
    )]
    TokenBeyond {
        /// The tokenizer.
        path: PathBuf,
        /// The token with the largest number.
        token: String,
        /// Its number.
        id: u32,
        /// Tokens of the model.
        vocab: usize,
    },
    /// A text has no tokens.
    #[error("the text cannot be divided into tokens: {why}")]
    Encode {
        /// What is wrong with it.
        why: String,
    },
    /// A long text has no place at which it can be encoded in pieces.
    #[error(
        "the text cannot be encoded in pieces: the {limit} bytes from byte {position} on have no \
         place at which it could be divided without changing its tokens; break long runs of \
         characters into lines"
    )]
    NotDivisible {
        /// The byte, counted from 0, from which on nothing was encoded.
        position: usize,
        /// Bytes of the largest piece that was tried.
        limit: usize,
    },
    /// Messages were to be written, and nothing says how.
    #[error(
        "the tokenizer has no chat template, which messages need; give a model directory that has \
         one in tokenizer_config.json or chat_template.jinja, or data of text or of \
         prompt and completion"
    )]
    NoChatTemplate,
    /// The chat template refuses a conversation.
    #[error("the chat template refuses the messages: {why}")]
    Chat {
        /// What it says.
        why: String,
    },
    /// The chat template needs more than it may.
    #[error("the chat template `{}` is beyond a limit: {limit}", path.display())]
    TemplateLimit {
        /// The file that has it.
        path: PathBuf,
        /// Which limit.
        limit: String,
    },
    /// The sequences of the run are longer than the model's context.
    #[error("{seq} tokens do not fit the context of the model, {positions} positions; use fewer")]
    TooLong {
        /// Tokens of a sequence.
        seq: usize,
        /// Positions of the model.
        positions: usize,
    },
}

impl HubError {
    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn read_tokenizer(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::ReadTokenizer { path, source }
    }

    pub(crate) fn encode(why: impl ToString) -> Self {
        Self::Encode { why: why.to_string() }
    }

    pub(crate) fn json(path: &Path, why: impl ToString) -> Self {
        Self::Json { path: path.to_owned(), why: shortened(why.to_string()) }
    }

    pub(super) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: shortened(why.to_string()) }
    }
}

/// Characters of a reason that a message repeats: libraries quote whole values of a file.
const REASON_CHARACTERS: usize = 2000;

/// The beginning of a long reason.
fn shortened(mut why: String) -> String {
    if let Some((end, _)) = why.char_indices().nth(REASON_CHARACTERS) {
        why.truncate(end);
        why.push('…');
    }
    why
}
