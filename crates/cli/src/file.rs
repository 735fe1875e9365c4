//! Atomic writing of results.

use std::path::Path;

use retrograph_finetune::temporary::replace_file;
use serde::Serialize;

use crate::error::CliError;

/// Writes `text` to `path` atomically: readers see the old text or the new one, and a failure
/// leaves the old one. Devices and pipes such as `/dev/stdout` are written directly.
pub(crate) fn write(what: &'static str, path: &Path, text: &str) -> Result<(), CliError> {
    let written = match path.canonicalize() {
        Ok(target) if !target.is_file() => std::fs::write(target, text),
        // A link is followed and not replaced.
        Ok(target) => replace_file(&target, text.as_bytes()),
        Err(_) => replace_file(path, text.as_bytes()),
    };
    written.map_err(|error| CliError::write(what, path, error))
}

/// Writes `value` as JSON with [`write()`].
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
    fn a_file_is_replaced_atomically_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        for text in ["a long text", "short"] {
            write("the result", &path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_file_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/result");
        let error = write("the result", &path, "text").unwrap_err().to_string();
        assert!(error.starts_with("the result cannot be written to `"), "{error}");
        assert!(error.contains("absent/result"), "{error}");
    }
}
