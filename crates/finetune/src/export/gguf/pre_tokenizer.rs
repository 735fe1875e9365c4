//! The names of llama.cpp's pre-tokenizers.

use serde_json::Value;

/// The expression of Qwen2, Qwen2.5 and Qwen3.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// The expression of Llama 3.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Returns the name of the pre-tokenizer of a byte-level tokenizer, `tokenizer.json`; `None` if
/// llama.cpp has none that splits texts in the same way.
pub(super) fn name(tokenizer: &Value) -> Option<&'static str> {
    let normalized = tokenizer["normalizer"]["type"].as_str();
    // llama.cpp does not normalize; its own converter ignores NFC, which changes few texts.
    if normalized.is_some_and(|kind| kind != "NFC") {
        return None;
    }
    let parts = parts(&tokenizer["pre_tokenizer"]);
    let ignores = tokenizer["model"]["ignore_merges"] == true;
    let merges = tokenizer["model"]["merges"].as_array().map_or(0, Vec::len);
    match parts.as_slice() {
        [Part::Split(QWEN2), Part::Bytes { regex: false }] if !ignores => Some("qwen2"),
        [Part::Split(LLAMA3), Part::Bytes { regex: false }] if ignores => Some("llama-bpe"),
        [Part::Digits, Part::Bytes { regex: true }] if !ignores => Some("smollm"),
        [Part::Bytes { regex: true }] if !ignores => Some("gpt-2"),
        // Without merges, each byte is a token wherever the text is split.
        [Part::Bytes { .. }] if merges == 0 => Some("gpt-2"),
        _ => None,
    }
}

/// A step of a pre-tokenizer.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    /// Isolates the matches of an expression.
    Split(&'a str),
    /// Isolates each digit.
    Digits,
    /// Maps bytes to characters, after splitting by the expression of GPT-2 if `regex` is set.
    Bytes {
        regex: bool,
    },
    Other,
}

fn parts(value: &Value) -> Vec<Part<'_>> {
    match value["type"].as_str() {
        Some("Sequence") => {
            value["pretokenizers"].as_array().into_iter().flatten().flat_map(parts).collect()
        }
        Some("Split") if value["behavior"] == "Isolated" && value["invert"] != true => {
            vec![value["pattern"]["Regex"].as_str().map_or(Part::Other, Part::Split)]
        }
        Some("Digits") if value["individual_digits"] == true => vec![Part::Digits],
        Some("ByteLevel") if value["add_prefix_space"] != true => {
            vec![Part::Bytes { regex: value["use_regex"] != false }]
        }
        _ => vec![Part::Other],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn split(regex: &str) -> Value {
        let split = json!({
            "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false,
        });
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false });
        json!({ "type": "Sequence", "pretokenizers": [split, bytes] })
    }

    #[test]
    fn only_equal_pre_tokenizers_have_a_name() {
        let named = |pre: Value, ignores: bool, normalizer: Value| {
            let model = json!({ "ignore_merges": ignores, "merges": [["a", "b"]] });
            name(&json!({ "pre_tokenizer": pre, "model": model, "normalizer": normalizer }))
        };
        let none = || Value::Null;
        assert_eq!(named(split(QWEN2), false, json!({ "type": "NFC" })), Some("qwen2"));
        assert_eq!(named(split(LLAMA3), true, none()), Some("llama-bpe"));
        let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": false });
        assert_eq!(named(gpt2.clone(), false, none()), Some("gpt-2"));
        assert_eq!(named(gpt2, false, json!({ "type": "Lowercase" })), None);
        assert_eq!(named(split(r"\s+"), false, none()), None);
        assert_eq!(named(split(LLAMA3), false, none()), None);
        assert_eq!(named(json!({ "type": "Whitespace" }), false, none()), None);
    }
}
