//! The token cache: the same data as in memory, read again without tokenizing, and never misread.

use std::fs;
use std::path::{Path, PathBuf};

use retrograph_finetune::data::{Lengths, Progress};
use retrograph_finetune::{
    CacheState, Data, DataError, DataFile, Error, Split, SplitOptions, TokenCache, Tokenizer,
};
use retrograph_test_support::with;
use serde_json::{Value, json};

use crate::data::Place;

type Read = fn(&SplitOptions, DataFile<'_>, Progress<'_>) -> Result<Split, Error>;
const FORMS: [(&str, Read); 3] = [
    ("text", SplitOptions::text),
    ("examples", SplitOptions::jsonl),
    ("pairs", SplitOptions::preferences),
];

fn options(holdout: f64) -> SplitOptions {
    with(SplitOptions::new(Lengths::new(16, 1)), |it| {
        it.packing = None;
        it.holdout = holdout;
        it.seed = 5;
    })
}

/// More bytes of lines than one thread takes at a time, so that threads share them. Most are in a
/// field that is ignored.
fn write_data(folder: &Path, form: &str) -> PathBuf {
    let text = |number: usize| format!("{number} the cat {}", "x y z ".repeat(number * 7 % 29));
    let line = |number: usize| {
        let mut line = match (form, number % 3) {
            ("pairs", _) => json!({ "prompt": text(number), "chosen": "the", "rejected": "cat" }),
            (_, 0) => json!({ "text": text(number) }),
            (_, 1) => json!({ "prompt": text(number), "completion": text(number + 1) }),
            _ => json!({ "messages": [
                { "role": "user", "content": text(number) },
                { "role": "assistant", "content": "cat" },
            ] }),
        };
        line["note"] = "-".repeat(800).into();
        line
    };
    let lines: Vec<String> = (0..100).map(|number| line(number).to_string()).collect();
    let path = folder.join(form);
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// The values that training reads from the data.
fn taken(data: &Data) -> Vec<Value> {
    let step = |step| data.batch([2, 16], 9, step).unwrap();
    let order = |index| data.in_order([3, 16], index).unwrap();
    let batches = (0..30).map(step).chain((0..).map_while(order));
    let batches = batches.map(|one| json!([one.tokens, one.targets, one.positions]));
    let facts = json!([data.fingerprint(), data.sequences(16), data.first(7)]);
    batches.chain([facts]).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn cached_data_is_the_data_in_memory_and_is_tokenized_once() {
    let place = Place::chatml();
    let tokenizer = place.tokenizer();
    for (form, read) in FORMS {
        let path = write_data(place.0.path(), form);
        let cache = TokenCache::at(place.0.path().join(format!("cache of {form}")));
        let memory = DataFile::new(&path, &tokenizer);
        let cached = DataFile { cache: Some(&cache), ..memory };
        for (holdout, state) in [(0.0, CacheState::Built), (0.2, CacheState::Reused)] {
            let expected = read(&options(holdout), memory, &mut |_, _| ()).unwrap();
            let mut last = (0, 0);
            let found = read(&options(holdout), cached, &mut |done, all| last = (done, all));
            let found = found.unwrap();
            assert_eq!(taken(&found.training), taken(&expected.training), "{form}");
            let held_out = |split: &Split| split.held_out.as_ref().map(taken);
            assert_eq!(held_out(&found), held_out(&expected), "{form}");
            assert!(expected.cache.is_none());
            let used = found.cache.unwrap();
            assert_eq!((&used.state, files(cache.path())), (&state, vec![used.path]));
            let bytes = fs::metadata(&path).unwrap().len() as usize;
            let built = state == CacheState::Built;
            assert_eq!(last, if built { (bytes, bytes) } else { (0, 0) }, "{form}");
        }
    }
}

#[test]
fn other_data_or_another_tokenizer_has_its_own_file() {
    let place = Place::chatml();
    let path = write_data(place.0.path(), "examples");
    let cache = TokenCache::at(place.0.path().join("cache"));
    let read = |tokenizer: &Tokenizer| {
        let file = DataFile { cache: Some(&cache), ..DataFile::new(&path, tokenizer) };
        let split = options(0.0).jsonl(file, &mut |_, _| ()).unwrap();
        (split.cache.unwrap().state, split.training.fingerprint().to_owned())
    };
    let first = read(&place.tokenizer());
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    fs::write(place.0.path().join("chat_template.jinja"), template).unwrap();
    let other = read(&place.tokenizer());
    assert_eq!((&first.0, &other.0), (&CacheState::Built, &CacheState::Built));
    assert_ne!(first.1, other.1);
    // The same length and time, and one other byte.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let text = fs::read_to_string(&path).unwrap().replacen("0 the cat", "0 the cap", 1);
    fs::write(&path, text).unwrap();
    fs::File::open(&path).unwrap().set_modified(time).unwrap();
    let changed = read(&place.tokenizer());
    assert_eq!((changed.0, read(&place.tokenizer()).0), (CacheState::Built, CacheState::Reused));
    assert_ne!(changed.1, other.1);
    assert_eq!(files(cache.path()).len(), 3);
}

#[test]
fn a_damaged_file_is_built_again() {
    let place = Place::chatml();
    let (tokenizer, path) = (place.tokenizer(), write_data(place.0.path(), "examples"));
    let cache = TokenCache::at(place.0.path().join("cache"));
    let file = DataFile { cache: Some(&cache), ..DataFile::new(&path, &tokenizer) };
    let read = || options(0.0).jsonl(file, &mut |_, _| ()).unwrap();
    let whole = taken(&read().training);
    let [tokens] = files(cache.path()).try_into().unwrap();
    let bytes = fs::read(&tokens).unwrap();
    for (damaged, words) in [
        (bytes[..bytes.len() - 1].to_vec(), "not complete"),
        (Vec::new(), "no header"),
        ([&bytes[..900], &[!bytes[900]], &bytes[901..]].concat(), "content"),
        ([&[0; 8], &bytes[8..]].concat(), "format"),
    ] {
        fs::write(&tokens, damaged).unwrap();
        let found = read();
        let CacheState::Rebuilt(reason) = found.cache.unwrap().state else { panic!("{words}") };
        assert!(reason.contains(words), "`{words}` is not in: {reason}");
        assert_eq!(taken(&found.training), whole);
        assert_eq!(read().cache.unwrap().state, CacheState::Reused);
    }
}

#[test]
fn data_that_cannot_be_used_leaves_no_file() {
    let place = Place::chatml();
    let (tokenizer, path) = (place.tokenizer(), place.0.path().join("data"));
    let cache = TokenCache::at(place.0.path().join("cache"));
    let read = || {
        let file = DataFile { cache: Some(&cache), ..DataFile::new(&path, &tokenizer) };
        options(0.0).jsonl(file, &mut |_, _| ())
    };
    assert!(matches!(read(), Err(Error::Data(DataError::Read { .. }))));
    fs::write(&path, "{ \"text\": \"the\" }\n{ \"text\": 5 }\n").unwrap();
    assert!(matches!(read(), Err(Error::Data(DataError::Malformed { .. }))));
    fs::write(&path, "{ \"messages\": [{ \"role\": \"user\", \"content\": \"x\" }] }").unwrap();
    assert!(matches!(read(), Err(Error::Data(DataError::NoAssistant { .. }))));
    assert_eq!(files(cache.path()), [] as [PathBuf; 0]);
    fs::write(&path, "{ \"text\": \"the cat\" }").unwrap();
    fs::remove_dir(cache.path()).unwrap();
    fs::write(cache.path(), "a file").unwrap();
    let error = read().unwrap_err();
    assert!(matches!(error, Error::Data(DataError::Cache { .. })), "{error}");
}

/// Processes of a run build the file once.
#[test]
fn concurrent_readers_share_a_file() {
    let place = Place::chatml();
    let (tokenizer, path) = (place.tokenizer(), write_data(place.0.path(), "examples"));
    let cache = TokenCache::at(place.0.path().join("cache"));
    let file = DataFile { cache: Some(&cache), ..DataFile::new(&path, &tokenizer) };
    let states: Vec<CacheState> = std::thread::scope(|scope| {
        let read = || options(0.0).jsonl(file, &mut |_, _| ()).unwrap().cache.unwrap().state;
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let built = states.iter().filter(|state| **state == CacheState::Built).count();
    assert_eq!((built, files(cache.path()).len()), (1, 1), "{states:?}");
}

#[test]
fn a_file_that_becomes_shorter_in_use_is_an_error() {
    let place = Place::chatml();
    let folder = tempfile::tempdir().unwrap();
    for (form, read) in FORMS {
        let path = write_data(folder.path(), form);
        let cache = TokenCache::at(folder.path().join(format!("{form}-cache")));
        let tokenizer = &place.tokenizer();
        let file = DataFile { path: &path, tokenizer, cache: Some(&cache) };
        let data = read(&options(0.0), file, &mut |_, _| ()).unwrap();
        data.training.batch([2, 16], 9, 0).unwrap();
        let [cached] = files(cache.path()).try_into().unwrap();
        let cached: PathBuf = cached;
        fs::File::options().write(true).open(&cached).unwrap().set_len(64).unwrap();
        let found = [
            data.training.batch([2, 16], 9, 0).map(|_| ()),
            data.training.in_order([2, 16], 0).map(|_| ()),
        ];
        for error in found.map(Result::unwrap_err) {
            assert!(error.to_string().contains("became shorter while it was in use"), "{error}");
        }
    }
}
