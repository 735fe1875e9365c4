//! Checks a `tokenizer.json` for parts on which `tokenizers` panics or does not terminate.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::hub::HubError;

/// Maximum factor by which all replacements together lengthen a text.
const GROWTH: usize = 64;

/// Maximum bytes of an added token: the automaton that finds added tokens grows with their length.
const ADDED: usize = 1024;

/// The checked parts of the file.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    added_tokens: Vec<Value>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
}

/// Checks the text of the file `path`.
///
/// # Errors
/// [`HubError::Json`] with the part that cannot be used.
pub(super) fn check(path: &Path, text: &[u8]) -> Result<(), HubError> {
    let parts: Parts = serde_json::from_slice(text).map_err(|error| HubError::json(path, error))?;
    let named = [
        ("normalizer", &parts.normalizer),
        ("pre_tokenizer", &parts.pre_tokenizer),
        ("decoder", &parts.decoder),
    ];
    for (name, part) in named {
        let Some(part) = part else { continue };
        let grown =
            growth(part).map_err(|reason| HubError::json(path, format!("{name}: {reason}")))?;
        if grown > GROWTH {
            let reason = format!(
                "{name}: its replacements lengthen a text by a factor of {grown}, above the limit \
                 of {GROWTH}"
            );
            return Err(HubError::json(path, reason));
        }
    }
    for token in &parts.added_tokens {
        let bytes = token["content"].as_str().map_or(0, str::len);
        if bytes > ADDED {
            let reason =
                format!("added_tokens: a token has {bytes} bytes, above the limit of {ADDED}");
            return Err(HubError::json(path, reason));
        }
    }
    let named = parts.post_processor.iter().try_for_each(tokens_are_named);
    named.map_err(|reason| HubError::json(path, format!("post_processor: {reason}")))
}

/// Returns the members of a `Sequence`. The name of their field depends on its kind.
fn members(part: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["normalizers", "pretokenizers", "processors", "decoders"];
    lists.into_iter().filter_map(|name| part[name].as_array()).flatten()
}

/// Returns the maximum factor by which a part lengthens a text.
fn growth(part: &Value) -> Result<usize, String> {
    let mut grown = 1usize;
    for member in members(part) {
        grown = grown.saturating_mul(growth(member)?);
    }
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    let own = match part["type"].as_str() {
        Some("Replace") => {
            let content = length(&part["content"]);
            match part["pattern"]["String"].as_str() {
                Some("") => return Err("it replaces the empty text".to_owned()),
                Some(pattern) => content.div_ceil(pattern.len()),
                // A regular expression may match between any two characters.
                None => content + 1,
            }
        }
        Some("Prepend") => length(&part["prepend"]),
        Some("Precompiled") => {
            let map = part["precompiled_charsmap"].as_str().unwrap_or_default();
            trie_fits(map.as_bytes()).then_some(1).ok_or("its `precompiled_charsmap` is damaged")?
        }
        _ => 1,
    };
    Ok(grown.saturating_mul(own.max(1)))
}

/// Returns whether the map, in base64, is long enough for its trie. The first four bytes are the
/// size of the trie in bytes, a multiple of 4, and the trie has a root.
fn trie_fits(map: &[u8]) -> bool {
    let digit = |byte: &u8| match byte {
        b'A'..=b'Z' => Some(u64::from(byte - b'A')),
        b'a'..=b'z' => Some(u64::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u64::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Option<Vec<u64>> = map.iter().take(6).map(digit).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 6) else { return false };
    let bits = digits.iter().fold(0, |bits, digit| bits << 6 | digit) >> 4;
    let trie = u64::from((bits as u32).swap_bytes());
    let bytes = map.len() as u64 / 4 * 3;
    trie >= 4 && trie % 4 == 0 && trie + 4 <= bytes
}

/// Checks that a template defines the special tokens that it uses.
fn tokens_are_named(part: &Value) -> Result<(), String> {
    members(part).try_for_each(tokens_are_named)?;
    let pieces = ["single", "pair"].into_iter().filter_map(|name| part[name].as_array()).flatten();
    for token in pieces.filter_map(|piece| piece["SpecialToken"]["id"].as_str()) {
        let described = &part["special_tokens"][token];
        let [ids, tokens] = ["ids", "tokens"].map(|name| described[name].as_array().map(Vec::len));
        if ids.is_none() || ids != tokens {
            return Err(format!("it uses the special token `{token}` without a definition"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replacements_multiply() {
        fn replace(pattern: Value, content: &str) -> Value {
            json!({ "type": "Replace", "pattern": pattern, "content": content })
        }
        let space = replace(json!({ "String": " " }), "▁");
        assert_eq!(growth(&space), Ok(3));
        let twice = json!({ "type": "Sequence", "normalizers": [space, space] });
        assert_eq!(growth(&twice), Ok(9));
        assert_eq!(growth(&replace(json!({ "Regex": "x*" }), "12")), Ok(3));
        assert!(growth(&replace(json!({ "String": "" }), "12")).is_err());
        assert_eq!(growth(&json!({ "type": "NFC" })), Ok(1));
    }

    #[test]
    fn a_trie_longer_than_the_map_is_damaged() {
        for map in ["", "AAAA", "AAAAAA==", "/////w==", "BAAAAA==", "=AAAAAAA"] {
            assert!(!trie_fits(map.as_bytes()), "{map}");
        }
        assert!(trie_fits(b"BAAAAAAAAAAA"), "one unit of four bytes");
    }
}
