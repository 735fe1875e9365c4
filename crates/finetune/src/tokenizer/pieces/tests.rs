//! Compares encoding in pieces with encoding the whole text, for several kinds of tokenizers and
//! difficult texts.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Map, Value, json};

use super::*;

/// Bytes of a piece: small, so that texts have many pieces.
const SMALL: usize = 1 << 10;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The character for each byte in byte-level tokenizers.
fn alphabet() -> Vec<String> {
    let printed = ['!'..='~', '¡'..='¬', '®'..='ÿ'];
    let others = (256..324).filter_map(char::from_u32);
    printed.into_iter().flatten().chain(others).map(String::from).collect()
}

fn bpe(words: Vec<String>, merges: &[[&str; 2]]) -> Value {
    let merged = merges.iter().map(|[left, right]| format!("{left}{right}"));
    let vocab: Map<String, Value> =
        words.into_iter().chain(merged).zip(0..).map(|(word, id)| (word, id.into())).collect();
    json!({ "type": "BPE", "vocab": vocab, "merges": merges })
}

fn tokenizer(parts: Value) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let mut file = json!({
        "version": "1.0",
        "added_tokens": [
            { "id": 5000, "content": "<|end|>", "special": true, "single_word": false,
              "lstrip": false, "rstrip": false, "normalized": false },
            { "id": 5001, "content": "<mask>", "special": true, "single_word": false,
              "lstrip": true, "rstrip": false, "normalized": false },
        ],
    });
    let parts = parts.as_object().unwrap().clone();
    file.as_object_mut().unwrap().extend(parts);
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::open(folder.path()).unwrap()
}

const MERGES: [[&str; 2]; 14] = [
    ["a", "t"],
    ["t", "h"],
    ["th", "e"],
    ["Ġ", "the"],
    ["e", "r"],
    ["Ġ", "c"],
    ["Ġc", "at"],
    ["1", "2"],
    ["Ġ", "Ġ"],
    ["ĠĠ", "ĠĠ"],
    ["a", "a"],
    ["aa", "aa"],
    ["Ċ", "Ċ"],
    ["at", "er"],
];

fn byte_level(regex: &str) -> Tokenizer {
    let split = json!({
        "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false,
    });
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    tokenizer(json!({
        "normalizer": { "type": "NFC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [split, bytes] },
        "model": bpe(alphabet(), &MERGES),
    }))
}

fn characters() -> Vec<String> {
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    bytes.chain((' '..='~').map(String::from)).chain(["▁".to_owned()]).collect()
}

const PIECES: [[&str; 2]; 8] = [
    ["▁", "t"],
    ["h", "e"],
    ["▁t", "he"],
    ["▁", "c"],
    ["a", "t"],
    ["▁c", "at"],
    ["a", "a"],
    ["▁", "▁"],
];

/// Llama 2: all spaces become `▁`, one is put in front, and a whole text is one word.
fn prepended() -> Tokenizer {
    let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let mut model = bpe(characters(), &PIECES);
    model["byte_fallback"] = true.into();
    tokenizer(json!({
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{ "type": "Prepend", "prepend": "▁" }, replace],
        },
        "model": model,
    }))
}

/// T5 and XLM-R: words that begin with `▁`, and the likeliest pieces of each.
fn unigram() -> Tokenizer {
    let mut vocab: Vec<(String, f64)> = vec![("<unk>".into(), 0.0)];
    vocab.extend((' '..='~').map(|one| (one.to_string(), -9.0)));
    let words = ["▁", "▁the", "▁cat", "at", "he", "aa", "aaa", "12", "é"];
    vocab.extend(words.iter().zip(1..).map(|(word, n)| (word.to_string(), -f64::from(n))));
    tokenizer(json!({
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true,
        },
        "model": { "type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false },
    }))
}

fn word_piece() -> Tokenizer {
    let words = ["[UNK]", "the", "cat", "##at", "##s", "a", "##a", "##e", "1", "##2", ".", ","];
    let vocab: Map<String, Value> =
        words.iter().zip(0..).map(|(word, id)| (word.to_string(), id.into())).collect();
    tokenizer(json!({
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    }))
}

fn all() -> Vec<(&'static str, Tokenizer)> {
    vec![
        ("gpt2", byte_level(GPT2)),
        ("qwen", byte_level(QWEN)),
        ("llama3", byte_level(LLAMA3)),
        ("prepended", prepended()),
        ("unigram", unigram()),
        ("wordpiece", word_piece()),
    ]
}

/// Pieces of text in an order that depends on the seed.
fn mixed(parts: &[&str], seed: u64) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::new();
    while text.len() < 12 * SMALL {
        text.push_str(parts[random.next_u32() as usize % parts.len()]);
    }
    text
}

fn in_pieces(tokenizer: &Tokenizer, text: &str, part: usize) -> Result<Vec<u32>, HubError> {
    let mut encoder = Encoder::in_pieces(tokenizer, SMALL);
    let mut largest = 0;
    for part in text.as_bytes().chunks(part) {
        encoder.push(part)?;
        largest = largest.max(encoder.text.len());
    }
    assert!(largest <= 3 * GROWTH * SMALL, "{largest} bytes wait");
    encoder.finish()
}

#[test]
fn pieces_have_the_tokens_of_the_whole_text() {
    let parts: [&[&str]; 7] = [
        &["the cat", " the", " cat", "s. ", "\n", "\n\n", " ", "  ", "'ll", ", ", "12", "Cater"],
        &["é", "e\u{301}", "日本語", "🦀", "👨‍👩‍👧", "ß", " the", "\u{a0}", "\u{200b}", "ا", "\u{301}"],
        &["<|end|>", "<|en", "d|>", "the", " <mask>", "  <mask>", "\n<|end|>\n", "cat <"],
        &["123", "4", "56789", "1212", " 3", ".5", "-"],
        &["fn the() {\n", "    cat(12);\n", "\t\t", "}\n\n", "// at", "  ", "\r\n", "=="],
        &["   ", "\n\n\n", "\t", "the", "      ", " \n ", "\r\n"],
        &["<|end|>", "a", "\n"],
    ];
    for (name, tokenizer) in all() {
        for (seed, parts) in parts.iter().enumerate() {
            let text = mixed(parts, seed as u64);
            let whole = tokenizer.encode_at_once(&text).unwrap();
            let found = in_pieces(&tokenizer, &text, 1000 + seed * 977).unwrap();
            assert!(found == whole, "{name}, parts {seed}");
        }
    }
}

#[test]
fn a_run_without_spaces_is_cut_inside_of_its_word_or_refused() {
    let runs = [
        mixed(&["the", "cat", "at", "e"], 1),
        "a".repeat(12 * SMALL + 1),
        "1".repeat(12 * SMALL + 5),
        "日本語".repeat(12 * SMALL / 9),
        " ".repeat(12 * SMALL + 3),
        "\n".repeat(12 * SMALL + 3),
    ];
    for (name, tokenizer) in all() {
        for (number, run) in runs.iter().enumerate() {
            let text = format!("the cat{run} the cat");
            match in_pieces(&tokenizer, &text, 2000) {
                Ok(found) => {
                    let whole = tokenizer.encode_at_once(&text).unwrap();
                    assert!(found == whole, "{name}, run {number}");
                }
                Err(error) => {
                    let refused = matches!(error, HubError::NotDivisible { .. });
                    assert!(refused, "{name}, run {number}: {error}");
                    // Letters and digits of byte-pair encoding need no spaces.
                    assert!(number >= 4 || ["unigram", "wordpiece"].contains(&name), "{name}");
                }
            }
        }
    }
}

#[test]
fn bytes_that_are_not_characters_are_named_by_their_place() {
    let tokenizer = byte_level(GPT2);
    let mut text = "the cat ".repeat(12 * SMALL / 8).into_bytes();
    let place = 9 * SMALL;
    text[place] = 0xff;
    let mut encoder = Encoder::in_pieces(&tokenizer, SMALL);
    let pushed = encoder.push(&text);
    let error = pushed.and_then(|()| encoder.finish()).unwrap_err().to_string();
    assert!(error.contains(&format!("byte {place},")), "{error}");
    // An incomplete character at the end is also invalid.
    let error = tokenizer.encode(&"é".as_bytes()[..1]).unwrap_err().to_string();
    assert!(error.contains("byte 0,"), "{error}");
}
