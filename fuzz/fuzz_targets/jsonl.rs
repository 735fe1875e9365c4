//! Lines of examples, read by a small tokenizer with a chat template.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use retrograph_finetune::Tokenizer;
use retrograph_finetune::data::read_jsonl;
use tempfile::TempDir;

const TOKENIZER: &str = include_str!("../seeds/tokenizer/bpe.json");
const TEMPLATE: &str = include_str!("../seeds/chat_template/chatml.jinja");

static PLACE: LazyLock<(TempDir, Tokenizer)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("tokenizer.json", TOKENIZER), ("chat_template.jinja", TEMPLATE)] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    (folder, tokenizer)
});

fuzz_target!(|file: &[u8]| {
    let (folder, tokenizer) = &*PLACE;
    let path = folder.path().join("data.jsonl");
    std::fs::write(&path, file).expect("a file");
    if let Err(error) = read_jsonl(&path, tokenizer, &mut |_, _| ()) {
        assert!(error.to_string().len() < 40_000, "a message without end");
    }
});
