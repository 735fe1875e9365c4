//! `tokenizer.json` for a model without a tokenizer: each byte is a token.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Returns the character for each byte in byte-level tokenizers. The table is GPT-2's.
pub(crate) fn byte_characters() -> [char; 256] {
    let printed = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = (256u32..).filter_map(char::from_u32);
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if printed(byte) { char::from(byte) } else { others.next().expect("there are enough") }
    })
}

/// Returns `tokenizer.json`, in which the id of each token is its byte.
pub(super) fn json() -> Value {
    let vocab: BTreeMap<String, usize> =
        byte_characters().into_iter().map(String::from).zip(0..).collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocab, "merges": [],
        },
    })
}

/// Returns `tokenizer_config.json`.
pub(super) fn settings() -> Value {
    json!({
        "add_bos_token": false,
        "clean_up_tokenization_spaces": false,
        "tokenizer_class": "PreTrainedTokenizerFast",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    #[test]
    fn the_written_tokenizer_encodes_each_byte_as_itself() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, value: Value| {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        };
        write("tokenizer.json", json());
        write("tokenizer_config.json", settings());
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        let text: String = (0..0x250).filter_map(char::from_u32).chain("日本".chars()).collect();
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        assert_eq!(tokenizer.encode(&text).unwrap(), bytes);
        assert_eq!(tokenizer.decode(&bytes), text);
        assert_eq!((tokenizer.len(), tokenizer.added_bos(), tokenizer.eos()), (256, None, None));
    }
}
