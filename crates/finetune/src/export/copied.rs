//! The files that an exported model gets from its base model.
//!
//! Only files with known names are copied: a model directory may also have data, logs and keys of
//! its user.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::Result;
use crate::hub::{CopiedFile, HubError, ModelDirectory};
use crate::json_file::read_json;
use crate::tokenizer::{GenerationConfig, TOKENIZER_FILE, Tokenizer};

/// The default sampling parameters and end tokens.
pub(super) const GENERATION: &str = "generation_config.json";
/// Files that are copied.
const NAMES: [&str; 8] = [
    GENERATION,
    "added_tokens.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "vocab.txt",
];
/// Beginnings of the names of files that are copied, in lower case.
const PREFIXES: [&str; 6] =
    ["chat_template", "license", "licence", "notice", "tokenizer", "use_policy"];
/// File extensions of files that are copied: templates, code of the model, SentencePiece models.
const EXTENSIONS: [&str; 3] = ["jinja", "py", "model"];
/// File extensions of weights, which are not copied.
const WEIGHTS: [&str; 9] =
    ["bin", "ckpt", "gguf", "h5", "msgpack", "onnx", "pt", "pth", "safetensors"];

/// Reads the files that [`write_model`](super::write_model) copies from `base`: tokenizer, chat
/// template, license, code, and default sampling parameters. It then needs the directory only for
/// the weights. Call it before training.
///
/// # Errors
/// [`HubError`] with a file that cannot be read.
pub fn read_files_of(base: &ModelDirectory) -> Result<()> {
    files_of(base).map(drop)
}

/// Returns the files, read by the first call.
pub(super) fn files_of(base: &ModelDirectory) -> Result<&[CopiedFile]> {
    if let Some(files) = base.copied().get() {
        return Ok(files);
    }
    let model = base.path();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(model).map_err(HubError::read(model))? {
        let path = entry.map_err(HubError::read(model))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_copied(name) && path.is_file() {
            let bytes = read_json(&path).map_err(HubError::read(&path))?;
            files.push((name.to_owned(), bytes));
        }
    }
    if files.iter().all(|(name, _)| name != GENERATION) {
        let there = files.iter().any(|(name, _)| name == TOKENIZER_FILE);
        let tokenizer = if there { base.tokenizer()? } else { Tokenizer::bytes() };
        let ends = GenerationConfig::open(model, &tokenizer)?.eos;
        let ends = if ends.is_empty() { Value::Null } else { json!(ends) };
        let text = format!("{:#}\n", json!({ "eos_token_id": ends }));
        files.push((GENERATION.to_owned(), text.into_bytes()));
    }
    Ok(base.copied().get_or_init(|| files))
}

/// Whether a file with this name is copied.
fn is_copied(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    let is_one_of = |list: &[&str]| extension.is_some_and(|extension| list.contains(&extension));
    let lower = name.to_lowercase();
    let begins = PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    let known = NAMES.contains(&name) || begins || is_one_of(&EXTENSIONS);
    known && !name.starts_with('.') && !is_one_of(&WEIGHTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_model_are_copied() {
        for name in [
            "tokenizer.json",
            "tokenizer_config.json",
            "tokenizer.model",
            "sentencepiece.bpe.model",
            "vocab.json",
            "merges.txt",
            "chat_template.jinja",
            "LICENSE",
            "LICENSE.txt",
            "NOTICE",
            "modeling_x.py",
            GENERATION,
        ] {
            assert!(is_copied(name), "{name}");
        }
        for name in [
            ".env",
            ".tokenizer.json",
            "train.jsonl",
            "README.md",
            "config.json",
            "model.safetensors",
            "model.safetensors.index.json",
            "tokenizer.bin",
            "adapter_config.json",
            "trainer_state.json",
        ] {
            assert!(!is_copied(name), "{name}");
        }
    }
}
