//! Writing results: whole or not at all.

use std::path::Path;

use retrograph_finetune::temporary::replace_file;
use serde::Serialize;

use crate::error::CliError;

/// Writes `text` to `path` at once: whoever reads the file sees all of the old text or all of the
/// new one, and a failure leaves the old. What is no file, such as `/dev/stdout`, is written to.
pub(crate) fn write(what: &'static str, path: &Path, text: &str) -> Result<(), CliError> {
    let written = match path.canonicalize() {
        Ok(place) if !place.is_file() => std::fs::write(place, text),
        // Behind a link lies the file that is meant.
        Ok(place) => replace_file(&place, text.as_bytes()),
        Err(_) => replace_file(path, text.as_bytes()),
    };
    written.map_err(|error| CliError::write(what, path, error))
}

/// Writes `value` as JSON, as [`write()`] does.
pub(crate) fn write_json(
    what: &'static str,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CliError::write(what, path, error))?;
    write(what, path, &(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        for text in ["a long text", "short"] {
            write("the result", &path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/result");
        let error = write("the result", &path, "text").unwrap_err().to_string();
        assert!(error.starts_with("the result cannot be written to `"), "{error}");
        assert!(error.contains("absent/result"), "{error}");
    }
}
