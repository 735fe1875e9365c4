//! `tokenizer.json`: opened, and if it can be used, asked for the tokens of a text and back.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use retrograph_finetune::Tokenizer;
use tempfile::TempDir;

const TEXT: &str = "The cat, 123 <s> e\u{301}日本 \n\n  'll ▁ \u{0}";

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|file: &[u8]| {
    std::fs::write(FOLDER.path().join("tokenizer.json"), file).expect("a file");
    let Ok(tokenizer) = Tokenizer::open(FOLDER.path()) else { return };
    if let Ok(tokens) = tokenizer.encode(TEXT) {
        assert_eq!(tokenizer.encode(TEXT).ok().as_ref(), Some(&tokens), "tokens change");
        tokenizer.decode(&tokens);
    }
});
