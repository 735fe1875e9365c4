//! The tokenizer as metadata: tokens, merges, special tokens and the chat template.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::file::{Metadata, Value};
use super::output::FORMAT;
use super::pre_tokenizer;
use crate::error::Result;
use crate::export::{ExportError, tokenizer};
use crate::hub::{HubError, ModelDirectory};
use crate::json_file::read_json;
use crate::tokenizer::{GenerationConfig, TOKENIZER_FILE, Tokenizer};

/// The kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// Adds the tokenizer of `base`, for a model of `vocab` tokens. Without a base, tokens are bytes.
pub(super) fn add(
    metadata: &mut Metadata,
    base: Option<&ModelDirectory>,
    vocab: usize,
) -> Result<()> {
    let tokenizer = base.map_or_else(|| Ok(Tokenizer::bytes()), ModelDirectory::tokenizer)?;
    let ends = match base {
        Some(base) => GenerationConfig::open(base.path(), &tokenizer)?.eos,
        None => Vec::new(),
    };
    let json = match base.filter(|_| !tokenizer.is_bytes()) {
        Some(base) => {
            let path = base.path().join(TOKENIZER_FILE);
            let text =
                read_json(&path).map_err(|source| HubError::Read { path: path.clone(), source })?;
            serde_json::from_slice(&text)
                .map_err(|error| HubError::Json { path, reason: error.to_string() })?
        }
        None => tokenizer::json(),
    };
    let tokens = Tokens::read(&json, vocab)?;
    add_tokens(metadata, &json, &tokens)?;
    add_special(metadata, &tokenizer, &ends)?;
    if let Some(template) = tokenizer.template() {
        metadata.add("tokenizer.chat_template", Value::Text(template.to_owned()));
    }
    Ok(())
}

fn refuse(what: impl Into<String>) -> ExportError {
    let remedy = "GGUF needs a byte-level BPE tokenizer that splits texts like Qwen, Llama 3, \
                  SmolLM or GPT-2, or a BPE tokenizer of SentencePiece such as Llama 2's; use a \
                  Hugging Face directory";
    ExportError::NotExpressible { format: FORMAT, what: what.into(), remedy }
}

/// The tokens by id.
struct Tokens {
    texts: Vec<String>,
    kinds: Vec<Kind>,
}

impl Tokens {
    fn read(json: &Json, vocab: usize) -> Result<Self, ExportError> {
        let model = &json["model"];
        // Older files have no `type`.
        let bpe = model["type"].as_str().is_none_or(|kind| kind == "BPE");
        let known = model["vocab"].as_object().filter(|_| bpe);
        let known =
            known.ok_or_else(|| refuse(format!("a tokenizer of type {}", model["type"])))?;
        let unknown = model["unk_token"].as_str();
        let mut texts: Vec<String> = (0..vocab).map(|id| format!("[PAD{id}]")).collect();
        let mut kinds = vec![Kind::Unused; vocab];
        let fallback = model["byte_fallback"] == true;
        for (text, id) in known {
            let kind = match text.as_str() {
                text if Some(text) == unknown => Kind::Unknown,
                text if fallback && is_byte(text) => Kind::Byte,
                _ => Kind::Normal,
            };
            put(&mut texts, &mut kinds, id, text, kind)?;
        }
        for token in json["added_tokens"].as_array().into_iter().flatten() {
            let Some(text) = token["content"].as_str() else { continue };
            let kind = match token["special"] == true {
                true if Some(text) == unknown => Kind::Unknown,
                true => Kind::Control,
                false => Kind::UserDefined,
            };
            put(&mut texts, &mut kinds, &token["id"], text, kind)?;
        }
        Ok(Self { texts, kinds })
    }
}

fn put(
    texts: &mut [String],
    kinds: &mut [Kind],
    id: &Json,
    text: &str,
    kind: Kind,
) -> Result<(), ExportError> {
    let place = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|id| *id < texts.len());
    let place = place.ok_or_else(|| refuse(format!("the token {text:?} with the id {id}")))?;
    texts[place] = text.to_owned();
    kinds[place] = kind;
    Ok(())
}

/// Whether a token is a byte, such as `<0x0A>`.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|text| text.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

fn add_tokens(metadata: &mut Metadata, json: &Json, tokens: &Tokens) -> Result<(), ExportError> {
    let merges = merges(&json["model"])?;
    let text = |text: &str| Value::Text(text.to_owned());
    let spaces = json["model"]["byte_fallback"] == true;
    metadata.add("tokenizer.ggml.model", text(if spaces { "llama" } else { "gpt2" }));
    if spaces {
        let prefix = space_prefix(json)
            .ok_or_else(|| refuse("a tokenizer with byte fallback and its normalizer"))?;
        metadata.add("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
        metadata.add("tokenizer.ggml.scores", Value::Floats(scores(&merges, &tokens.texts)));
        if let Some(unknown) = tokens.kinds.iter().position(|kind| *kind == Kind::Unknown) {
            let unknown = Value::U32(unknown.try_into().unwrap_or(u32::MAX));
            metadata.add("tokenizer.ggml.unknown_token_id", unknown);
        }
    } else {
        let pre = pre_tokenizer::name(json);
        let pre = pre.ok_or_else(|| refuse("the pre-tokenizer of this tokenizer"))?;
        metadata.add("tokenizer.ggml.pre", text(pre));
        let joined = merges.iter().map(|[left, right]| format!("{left} {right}"));
        metadata.add("tokenizer.ggml.merges", Value::Texts(joined.collect()));
    }
    metadata.add("tokenizer.ggml.tokens", Value::Texts(tokens.texts.clone()));
    let kinds = tokens.kinds.iter().map(|kind| *kind as i32);
    metadata.add("tokenizer.ggml.token_type", Value::Integers(kinds.collect()));
    Ok(())
}

/// Returns the merges in order: pairs, or in older files strings with a space between the halves.
fn merges(model: &Json) -> Result<Vec<[&str; 2]>, ExportError> {
    let all = model["merges"].as_array().map_or(&[][..], Vec::as_slice);
    let found: Option<Vec<_>> = all.iter().map(pair).collect();
    found.ok_or_else(|| refuse("the merges of this tokenizer"))
}

fn pair(merge: &Json) -> Option<[&str; 2]> {
    match merge {
        Json::String(text) => text.split_once(' ').map(|(left, right)| [left, right]),
        Json::Array(pair) => Some([pair.first()?.as_str()?, pair.get(1)?.as_str()?]),
        _ => None,
    }
}

/// Returns the scores by which llama.cpp orders merges: minus the rank of the first merge that
/// makes a token. Tokens that no merge makes come last: llama.cpp joins any two neighbours whose
/// text is a token.
fn scores(merges: &[[&str; 2]], texts: &[String]) -> Vec<f32> {
    let mut ranks = BTreeMap::new();
    for (rank, [left, right]) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank + 1);
    }
    let last = merges.len() + 1;
    texts.iter().map(|text| -(*ranks.get(text).unwrap_or(&last) as f32)).collect()
}

/// Whether a text gets a space in front, for a tokenizer that writes spaces as `▁`.
fn space_prefix(json: &Json) -> Option<bool> {
    const SPACE: &str = "\u{2581}";
    let none = Map::new();
    let normalizer = json["normalizer"].as_object().unwrap_or(&none);
    let pre = json["pre_tokenizer"].as_object().unwrap_or(&none);
    // Gemma splits at spaces, of which the normalizer leaves none.
    let splits = |pre: &Map<String, Json>| {
        pre.get("type").is_some_and(|kind| kind == "Split")
            && pre.get("pattern").is_some_and(|pattern| pattern["String"] == " ")
    };
    let pre = if splits(pre) { &none } else { pre };
    let replaces = |step: &Json| {
        step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == SPACE
    };
    let prepends = |step: &Json| step["type"] == "Prepend" && step["prepend"] == SPACE;
    if pre.is_empty() && normalizer.get("type")? == "Sequence" {
        return match normalizer.get("normalizers")?.as_array()?.as_slice() {
            [first, second] if prepends(first) && replaces(second) => Some(true),
            [only] if replaces(only) => Some(false),
            _ => None,
        };
    }
    if pre.is_empty() {
        return replaces(&json["normalizer"]).then_some(false);
    }
    if normalizer.is_empty() && pre.get("type")? == "Metaspace" && pre.get("replacement")? == SPACE
    {
        return match pre.get("prepend_scheme").and_then(Json::as_str) {
            Some("never") => Some(false),
            Some("first" | "always") => Some(true),
            _ => pre.get("add_prefix_space").and_then(Json::as_bool),
        };
    }
    None
}

/// Adds start, end and padding tokens. llama.cpp assumes defaults for tokens that a file does not
/// name, so every file names start and end.
fn add_special(
    metadata: &mut Metadata,
    tokenizer: &Tokenizer,
    ends: &[u32],
) -> Result<(), ExportError> {
    // Texts do not contain byte 0.
    let bytes = tokenizer.is_bytes().then_some(0);
    let end = tokenizer.eos().or(ends.first().copied()).or(bytes).ok_or_else(|| {
        let what = "a tokenizer without an end token".to_owned();
        let remedy = "set eos_token in tokenizer_config.json";
        ExportError::NotExpressible { format: FORMAT, what, remedy }
    })?;
    let start = tokenizer.bos().or(tokenizer.added_bos()).unwrap_or(end);
    metadata.add("tokenizer.ggml.bos_token_id", Value::U32(start));
    metadata.add("tokenizer.ggml.eos_token_id", Value::U32(end));
    if let Some(padding) = tokenizer.padding() {
        metadata.add("tokenizer.ggml.padding_token_id", Value::U32(padding));
    }
    metadata.add("tokenizer.ggml.add_bos_token", Value::Bool(tokenizer.added_bos().is_some()));
    metadata.add("tokenizer.ggml.add_eos_token", Value::Bool(false));
    Ok(())
}
