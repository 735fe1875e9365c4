//! `tokenizer_config.json`: start, end and padding tokens, and the chat template.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::hub::HubError;
use crate::json_file::{parse_json, read_json};

/// The settings that are read from `tokenizer_config.json`.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    path: PathBuf,
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) pad: Option<String>,
    /// Whether a text starts with `bos`; without it, `tokenizer.json` decides.
    pub(super) add_bos: Option<bool>,
    /// The chat template and its file.
    pub(super) template: Option<(PathBuf, String)>,
}

#[derive(Debug, Default, Deserialize)]
struct Raw {
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    pad_token: Option<Token>,
    add_bos_token: Option<bool>,
    chat_template: Option<Templates>,
}

/// One template, or several with a default.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<Named>),
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl Templates {
    fn default(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(all) => {
                all.into_iter().find(|one| one.name == "default").map(|one| one.template)
            }
        }
    }
}

/// A token as text, or as an object with its text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Described { content: String },
}

impl Settings {
    /// Reads the file in `directory`. Without it, nothing is set.
    pub(super) fn read(directory: &Path) -> Result<Self, HubError> {
        let path = directory.join("tokenizer_config.json");
        let raw = read_if_there::<Raw>(&path)?.unwrap_or_default();
        let text = |token: Option<Token>| {
            token.map(|token| match token {
                Token::Text(content) | Token::Described { content } => content,
            })
        };
        let Raw { bos_token, eos_token, pad_token, add_bos_token, chat_template } = raw;
        let [bos, eos, pad] = [bos_token, eos_token, pad_token].map(text);
        let inside = chat_template.and_then(Templates::default).map(|text| (path.clone(), text));
        // A template in its own file takes precedence, as in `transformers`.
        let template = template_file(directory)?.or(inside);
        Ok(Self { path, bos, eos, pad, add_bos: add_bos_token, template })
    }

    /// Returns SHA-256 of all settings, without the paths of their files.
    pub(super) fn digest(&self) -> [u8; 32] {
        let Self { path: _, bos, eos, pad, add_bos, template } = self;
        let template = template.as_ref().map(|(_, text)| text);
        let all = serde_json::json!([bos, eos, pad, add_bos, template]);
        Sha256::digest(all.to_string()).into()
    }

    /// Returns the id of a token of the settings.
    pub(super) fn find(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        token: Option<&str>,
    ) -> Result<Option<u32>, HubError> {
        let Some(token) = token else { return Ok(None) };
        let found = tokenizer.token_to_id(token);
        let missing = || format!("it names the token `{token}`, which is not in tokenizer.json");
        found.map(Some).ok_or_else(|| HubError::json(&self.path, missing()))
    }
}

fn template_file(directory: &Path) -> Result<Option<(PathBuf, String)>, HubError> {
    let path = directory.join("chat_template.jinja");
    let text = read_json(&path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))
    });
    match text {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HubError::json(&path, error)),
    }
}

/// Reads a JSON file; `None` if it does not exist.
pub(super) fn read_if_there<T: for<'de> Deserialize<'de>>(
    path: &Path,
) -> Result<Option<T>, HubError> {
    let text = match read_json(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HubError::json(path, error)),
    };
    parse_json(&text).map(Some).map_err(|error| HubError::json(path, error))
}
