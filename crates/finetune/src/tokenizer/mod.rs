//! Encoding and decoding of text, with the tokenizer of a model directory or with bytes as tokens.
//!
//! ```
//! use retrograph_finetune::Tokenizer;
//!
//! let tokenizer = Tokenizer::bytes();
//! assert_eq!(tokenizer.encode("hi")?, [104, 105]);
//! assert_eq!(tokenizer.decode(&[104, 105]), "hi");
//! # Ok::<(), retrograph_finetune::Error>(())
//! ```
//!
//! A model directory has `tokenizer.json`, which the crate `tokenizers` reads, and
//! `tokenizer_config.json` with the start and end tokens. Older formats, `vocab.json` or
//! `tokenizer.model` without `tokenizer.json`, are not supported; `save_pretrained` of
//! `transformers` converts them.

mod chat;
mod check;
mod generation;
mod guard;
mod json;
mod meter;
mod operators;
mod pieces;
mod python;
mod rewrite;
mod settings;
mod stream;
mod template;
mod today;

use std::path::Path;

pub(crate) use chat::ASSISTANT;
pub use chat::{ChatTemplate, Conversation};
pub use generation::GenerationConfig;
#[cfg(feature = "parquet")]
pub(crate) use guard::caught;
pub use pieces::Encoder;
pub use stream::TokenStream;

use crate::config::BYTE_VOCABULARY;
use crate::error::Result;
use crate::hub::HubError;
use crate::json_file::read_json;
use guard::guarded;
use settings::Settings;
use sha2::{Digest, Sha256};

/// The file of the tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// A tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    start: Option<u32>,
    end: Option<u32>,
    pad: Option<u32>,
    settings: Settings,
    /// The token with the largest id.
    largest: (String, u32),
    /// The text of special tokens.
    special: Vec<String>,
    /// SHA-256 of the file; of nothing for bytes.
    file: [u8; 32],
}

#[derive(Clone, Debug)]
enum Vocabulary {
    /// Each byte is a token; its value is the id.
    Bytes,
    /// The vocabulary of a model directory.
    Subwords(Box<tokenizers::Tokenizer>),
}

impl Tokenizer {
    /// Returns a tokenizer with bytes as tokens, without start and end tokens.
    pub fn bytes() -> Self {
        let (vocabulary, settings) = (Vocabulary::Bytes, Settings::default());
        let largest = (String::new(), BYTE_VOCABULARY as u32 - 1);
        let (start, end, pad, special) = (None, None, None, Vec::new());
        let file = Sha256::digest([]).into();
        Self { vocabulary, start, end, pad, settings, largest, special, file }
    }

    /// Opens the tokenizer of the folder `directory`.
    ///
    /// # Errors
    /// [`HubError`] with the file that is missing or cannot be used.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(TOKENIZER_FILE);
        let text = read_json(&path).map_err(HubError::read_tokenizer(&path))?;
        let failed = |error: tokenizers::Error| HubError::json(&path, error);
        check::check(&path, &text)?;
        let file = Sha256::digest(&text).into();
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(text)).map_err(failed)?;
        // Padding and truncation in the file are settings of an earlier use.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(failed)?;
        without_dropout(&mut inner);
        let settings = Settings::read(directory)?;
        let find = |name: &Option<String>| settings.find(&inner, name.as_deref());
        let (start, end, pad) = (find(&settings.bos)?, find(&settings.eos)?, find(&settings.pad)?);
        let start = match settings.add_bos {
            Some(add) => start.filter(|_| add),
            None => start_of_post_processor(&inner).map_err(failed)?,
        };
        // The post-processor only adds special tokens, which this crate does itself.
        inner.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        let added = inner.get_added_tokens_decoder().into_values().filter(|token| token.special);
        let special = added.map(|token| token.content).collect();
        let largest = inner.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
        let largest = largest.ok_or_else(|| HubError::json(&path, "it has no tokens"))?;
        if largest.1 >= 1 << 31 {
            let reason =
                format!("token `{}` has the id {}, which takes 32 bits", largest.0, largest.1);
            return Err(HubError::json(&path, reason).into());
        }
        let vocabulary = Vocabulary::Subwords(Box::new(inner));
        Ok(Self { vocabulary, start, end, pad, settings, largest, special, file })
    }

    /// Whether each byte is a token.
    pub fn is_bytes(&self) -> bool {
        matches!(self.vocabulary, Vocabulary::Bytes)
    }

    /// One more than the largest token id. The vocabulary of a model may be larger.
    pub fn len(&self) -> usize {
        self.largest.1 as usize + 1
    }

    /// Returns false: there is always a token.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns SHA-256 of everything that determines the tokens of texts and conversations.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.file);
        hash.update(self.settings.digest());
        hash.update([u8::from(self.is_bytes())]);
        hash.finalize().into()
    }

    /// Checks that all tokens of the tokenizer in `directory` are in a vocabulary of `vocab`
    /// tokens.
    ///
    /// # Errors
    /// [`HubError::TokenBeyond`] with the token of the largest id.
    pub(crate) fn require(&self, directory: &Path, vocab: usize) -> Result<()> {
        if self.len() <= vocab {
            return Ok(());
        }
        let path = directory.join(TOKENIZER_FILE);
        if self.is_bytes() {
            return Err(HubError::NoTokenizer { path, vocab }.into());
        }
        let (token, id) = self.largest.clone();
        Err(HubError::TokenBeyond { path, token, id, vocab }.into())
    }

    /// Encodes a text in one piece.
    fn encode_at_once(&self, text: &str) -> Result<Vec<u32>, HubError> {
        let Vocabulary::Subwords(inner) = &self.vocabulary else {
            return Ok(text.bytes().map(u32::from).collect());
        };
        let encoding = guarded(|| inner.encode_fast(text, false)).map_err(HubError::encode)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes `tokens`, without special and unknown tokens. Invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.vocabulary {
            Vocabulary::Bytes => {
                let bytes = tokens.iter().filter_map(|&token| u8::try_from(token).ok());
                String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
            }
            Vocabulary::Subwords(inner) => {
                guarded(|| inner.decode(tokens, true)).unwrap_or_default()
            }
        }
    }

    /// Returns the id of the token with the text `token`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match (&self.vocabulary, token.as_bytes()) {
            (Vocabulary::Bytes, [byte]) => Some(u32::from(*byte)),
            (Vocabulary::Bytes, _) => None,
            (Vocabulary::Subwords(inner), _) => inner.token_to_id(token),
        }
    }

    /// The bos token, if the model expects it at the start of a text.
    pub fn added_bos(&self) -> Option<u32> {
        self.start
    }

    /// The bos token, whether or not texts start with it.
    pub(crate) fn bos(&self) -> Option<u32> {
        self.settings.bos.as_deref().and_then(|token| self.token_to_id(token))
    }

    /// The padding token, if there is one.
    pub(crate) fn padding(&self) -> Option<u32> {
        self.pad
    }

    /// The text of the chat template, if there is one.
    pub(crate) fn template(&self) -> Option<&str> {
        self.settings.template.as_ref().map(|(_, text)| text.as_str())
    }

    /// The eos token, which ends a text, if there is one.
    pub fn eos(&self) -> Option<u32> {
        self.end
    }

    /// Compiles the chat template.
    ///
    /// # Errors
    /// [`HubError::NoChatTemplate`] if the tokenizer has no template, and [`HubError::Json`] for a
    /// syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, HubError> {
        ChatTemplate::of(&self.settings)
    }

    /// Whether the tokenizer has a chat template.
    pub(crate) fn has_chat_template(&self) -> bool {
        self.settings.template.is_some()
    }

    /// Returns whether `text` ends with a special token.
    pub(crate) fn ends_special(&self, text: &str) -> bool {
        self.special.iter().any(|token| text.ends_with(token.as_str()))
    }

    /// Returns the padding token. Padding has no loss, so any token works.
    pub fn pad(&self) -> u32 {
        self.pad.or(self.end).unwrap_or(0)
    }
}

/// Turns off dropout of BPE merges, so a text always has the same tokens.
fn without_dropout(inner: &mut tokenizers::Tokenizer) {
    if let tokenizers::ModelWrapper::BPE(model) = inner.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        inner.with_model(model);
    }
}

/// Returns the token that the post-processor adds at the start of a text.
fn start_of_post_processor(inner: &tokenizers::Tokenizer) -> tokenizers::Result<Option<u32>> {
    let encode = |special| guarded(|| inner.encode("a", special));
    let (plain, whole) = (encode(false)?, encode(true)?);
    let (plain, whole) = (plain.get_ids(), whole.get_ids());
    let found = |start: &usize| whole[*start..].starts_with(plain);
    let start = (0..whole.len()).find(found).unwrap_or(0);
    Ok(whole[..start].first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_is_a_token() {
        let tokenizer = Tokenizer::bytes();
        let all: Vec<u8> = (0..=255).collect();
        let tokens = tokenizer.encode(&all).unwrap();
        assert!(tokens.iter().copied().eq(0..256));
        assert_eq!(tokenizer.len(), 256);
        assert_eq!(tokenizer.decode(&tokenizer.encode("a é").unwrap()), "a é");
        assert_eq!(tokenizer.decode(&[97, 0xff, 300]), "a\u{fffd}");
        assert_eq!((tokenizer.token_to_id("a"), tokenizer.token_to_id("ab")), (Some(97), None));
        assert_eq!((tokenizer.added_bos(), tokenizer.eos(), tokenizer.pad()), (None, None, 0));
    }

    #[test]
    fn a_model_without_tokenizer_must_know_bytes() {
        let error = Tokenizer::bytes().require("m".as_ref(), 255).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json") && error.contains("255"), "{error}");
        Tokenizer::bytes().require("m".as_ref(), 256).unwrap();
    }
}
