//! Compares Parquet files of pyarrow (`tests/golden/make_parquet.py`) with the same rows as JSON
//! Lines.

use std::fs;
use std::path::{Path, PathBuf};

use retrograph_finetune::data::{Lengths, read_jsonl, read_preferences};
use retrograph_finetune::{CacheState, DataError, DataFile, Error, SplitOptions, TokenCache};
use retrograph_test_support::with;

use crate::data::Place;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parquet").join(name)
}

#[test]
fn rows_are_the_examples_of_the_same_lines() {
    let tokenizer = Place::chatml().tokenizer();
    let read = |name: &str| {
        let (mut last, path) = ((0, 0), golden(name));
        let found = read_jsonl(&path, &tokenizer, &mut |done, all| last = (done, all)).unwrap();
        let bytes = fs::metadata(path).unwrap().len() as usize;
        assert_eq!(last, (bytes, bytes), "{name}");
        found
    };
    let expected = read("rows.jsonl");
    assert_eq!(expected.0.len(), 70);
    for name in ["snappy.parquet", "gzip.parquet", "plain.parquet"] {
        assert_eq!(read(name), expected, "{name}");
    }
    let pairs = |name: &str| read_preferences(&golden(name), &tokenizer, &mut |_, _| ()).unwrap();
    let expected = pairs("pairs.jsonl");
    assert_eq!((expected.len(), pairs("pairs.parquet")), (5, expected));
}

#[test]
fn a_token_cache_has_the_rows_of_a_file() {
    let place = Place::chatml();
    let (tokenizer, path) = (place.tokenizer(), place.0.path().join("data"));
    fs::copy(golden("snappy.parquet"), &path).unwrap();
    let cache = TokenCache::at(place.0.path().join("cache"));
    let options = with(SplitOptions::new(Lengths::new(16, 1)), |it| it.packing = None);
    let memory = DataFile::new(&path, &tokenizer);
    let expected = options.jsonl(memory, &mut |_, _| ()).unwrap().training;
    for state in [CacheState::Built, CacheState::Reused] {
        let file = DataFile { cache: Some(&cache), ..memory };
        let found = options.jsonl(file, &mut |_, _| ()).unwrap();
        assert_eq!(found.cache.unwrap().state, state);
        assert_eq!(found.training.fingerprint(), expected.fingerprint());
    }
}

#[test]
fn a_file_that_cannot_be_used_is_an_error_with_the_reason() {
    let place = Place::chatml();
    let tokenizer = place.tokenizer();
    let error = |path: &Path| {
        let error = read_jsonl(path, &tokenizer, &mut |_, _| ()).unwrap_err();
        assert!(matches!(error, Error::Data(DataError::Parquet { .. })), "{error}");
        error.to_string()
    };
    let binary = error(&golden("binary.parquet"));
    assert!(binary.contains("column `text` has bytes that are not of a string type"), "{binary}");
    let other = error(&golden("other.parquet"));
    assert!(other.contains("its columns are a, b; none belongs to an example"), "{other}");
    if !cfg!(feature = "parquet-zstd") {
        let zstd = error(&golden("zstd.parquet"));
        assert!(zstd.to_lowercase().contains("zstd"), "{zstd}");
    }
    // Cut and damaged files are errors, or, if the damage is in a value, other examples.
    let path = place.0.path().join("data");
    let whole = fs::read(golden("snappy.parquet")).unwrap();
    for len in (4..whole.len()).step_by(211) {
        fs::write(&path, &whole[..len]).unwrap();
        error(&path);
    }
    for at in (4..whole.len()).step_by(101) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x15;
        fs::write(&path, damaged).unwrap();
        let _ = read_jsonl(&path, &tokenizer, &mut |_, _| ());
    }
}
