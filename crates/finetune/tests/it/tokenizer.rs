//! Tokenizers of model directories.

use std::fs;

use retrograph_finetune::{Error, GenerationConfig, HubError, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::small_tokenizer::{PLAIN, chatml, tokenizer, write};

const SPECIAL: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|pad|>"];

fn folder(tokenizer: &Value, settings: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), tokenizer, settings);
    folder
}

#[test]
fn text_becomes_tokens_and_tokens_text() {
    let folder = folder(&tokenizer(&SPECIAL), &chatml());
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let word = |word: &str| tokenizer.token_to_id(word).unwrap_or_else(|| panic!("no `{word}`"));
    let text = "the cat → <|im_end|>";
    let tokens = tokenizer.encode(text).unwrap();
    assert_eq!(tokens[..2], [word("the"), word("Ġcat")]);
    // The arrow has three bytes, with spaces around it.
    assert_eq!(tokens.len(), 2 + 1 + 3 + 1 + 1);
    assert_eq!(tokens.last(), Some(&(PLAIN + 1)));
    assert_eq!(tokenizer.decode(&tokens), "the cat → ");
    assert_eq!((tokenizer.added_bos(), tokenizer.eos()), (None, Some(PLAIN + 1)));
    assert_eq!((tokenizer.pad(), tokenizer.len()), (PLAIN + 2, PLAIN as usize + 3));
    assert!(!tokenizer.is_bytes());

    let mut stream = tokenizer.stream();
    let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token)).collect();
    pieces.push(stream.finish());
    assert_eq!(pieces[..7], ["the", " cat", " ", "", "", "→", " "]);
    assert_eq!(pieces.concat(), "the cat → ");
    assert!(matches!(tokenizer.encode([0xff]), Err(Error::Model(HubError::Encode { .. }))));
}

#[test]
fn the_files_decide_the_first_token_of_a_text() {
    let start = |processed: bool, settings: Value| {
        let mut inner = tokenizer(&["<s>", "</s>"]);
        if processed {
            let special = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
            let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
            let described =
                |token: &str, id: u32| json!({ "id": token, "ids": [id], "tokens": [token] });
            let (first, last) = (described("<s>", PLAIN), described("</s>", PLAIN + 1));
            inner["post_processor"] = json!({
                "type": "TemplateProcessing", "pair": [text],
                "single": [special("<s>"), text, special("</s>")],
                "special_tokens": { "<s>": first, "</s>": last },
            });
        }
        let folder = folder(&inner, &settings);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        assert_eq!(tokenizer.encode("a").unwrap().len(), 1, "nothing is put in front");
        tokenizer.added_bos()
    };
    let bos = json!({ "bos_token": "<s>" });
    let with = |add: bool| json!({ "bos_token": "<s>", "add_bos_token": add });
    assert_eq!((start(true, bos.clone()), start(false, bos)), (Some(PLAIN), None));
    assert_eq!((start(true, with(false)), start(false, with(true))), (None, Some(PLAIN)));
    assert_eq!(start(true, json!({})), Some(PLAIN));
}

#[test]
fn truncation_and_padding_in_the_file_are_ignored() {
    let mut inner = tokenizer(&SPECIAL);
    inner["padding"] = json!({
        "strategy": { "Fixed": 8 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "!",
    });
    inner["truncation"] = json!({
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0,
    });
    let folder = folder(&inner, &chatml());
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    assert_eq!(tokenizer.encode("xyzxyz").unwrap().len(), 6);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let place = folder(&tokenizer(&SPECIAL), &json!({ "eos_token": "<|end|>" }));
    let error = || Tokenizer::open(place.path()).unwrap_err().to_string();
    assert!(
        error().contains("tokenizer_config.json") && error().contains("<|end|>"),
        "{}",
        error()
    );
    fs::write(place.path().join("tokenizer_config.json"), "[").unwrap();
    assert!(error().contains("tokenizer_config.json"), "{}", error());
    fs::write(place.path().join("tokenizer.json"), "{}").unwrap();
    assert!(error().contains("tokenizer.json"), "{}", error());
    fs::remove_file(place.path().join("tokenizer.json")).unwrap();
    assert!(error().contains("save_pretrained"), "{}", error());
}

#[test]
fn the_end_token_of_the_tokenizer_is_the_default() {
    let folder = folder(&tokenizer(&SPECIAL), &chatml());
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let eos = || GenerationConfig::open(folder.path(), &tokenizer).unwrap().eos;
    assert_eq!(eos(), [PLAIN + 1]);
    fs::write(folder.path().join("config.json"), r#"{ "eos_token_id": 5 }"#).unwrap();
    assert_eq!(eos(), [5]);
}

/// The error of a tokenizer with the given parts.
fn refused(parts: &[(&str, Value)]) -> String {
    let mut inner = tokenizer(&SPECIAL);
    parts.iter().for_each(|(name, part)| inner[*name] = part.clone());
    Tokenizer::open(folder(&inner, &json!({})).path()).unwrap_err().to_string()
}

#[test]
fn parts_on_which_a_tokenizer_would_panic_are_refused_by_name() {
    for map in ["", "AAAA", "AAAAAA==", "/////w=="] {
        let part = json!({ "type": "Precompiled", "precompiled_charsmap": map });
        let nested = json!({ "type": "Sequence", "normalizers": [part] });
        for part in [part, nested] {
            let error = refused(&[("normalizer", part)]);
            for words in ["tokenizer.json", "normalizer", "precompiled_charsmap"] {
                assert!(error.contains(words), "{map}: {error}");
            }
        }
    }
    let template = json!({
        "type": "TemplateProcessing", "pair": [], "special_tokens": {},
        "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }],
    });
    let nested = json!({ "type": "Sequence", "processors": [template] });
    for part in [template, nested] {
        let error = refused(&[("post_processor", part)]);
        assert!(error.contains("post_processor") && error.contains("`<s>`"), "{error}");
    }
}

#[test]
fn replacements_that_make_a_text_much_longer_are_refused() {
    let replace = json!({
        "type": "Replace", "pattern": { "String": "a" }, "content": "a".repeat(100),
    });
    let four = json!({ "type": "Sequence", "normalizers": vec![replace; 4] });
    let error = refused(&[("normalizer", four)]);
    assert!(error.contains("normalizer") && error.contains("a factor of 100000000"), "{error}");
}

/// A trie of one unit, over whose end every character reaches.
#[test]
fn a_panic_of_the_tokenizer_is_an_error() {
    let map = "BAAAAAAAAAAA";
    let error =
        refused(&[("normalizer", json!({ "type": "Precompiled", "precompiled_charsmap": map }))]);
    assert!(error.contains("tokenizer.json") && error.contains("the tokenizer failed"), "{error}");
}

#[test]
fn dropout_of_merges_is_turned_off() {
    let mut inner = tokenizer(&SPECIAL);
    let text = "the cat ".repeat(50);
    let expected = Tokenizer::open(folder(&inner, &chatml()).path()).unwrap().encode(&text);
    inner["model"]["dropout"] = json!(0.9);
    let found = Tokenizer::open(folder(&inner, &chatml()).path()).unwrap().encode(&text);
    assert_eq!(found.unwrap(), expected.unwrap());
}
