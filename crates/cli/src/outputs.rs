//! Checks the files that a command will write, before it does anything else.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use retrograph_finetune::files::{folder_of, require_writable, resolve_links};

use crate::error::CliError;
use crate::file::standard_stream;

/// Number of leading bytes of an existing file that are checked.
const CHECKED_BYTES: u64 = 256;

/// A file that will be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    /// Its name in messages.
    pub(crate) what: &'static str,
    pub(crate) path: &'a Path,
    /// The text with which files of this kind begin, without whitespace.
    pub(crate) begins: &'static str,
}

/// Checks that every output can be written, replaces only a file of its kind, and is neither an
/// input nor another output.
pub(crate) fn require(outputs: &[Output<'_>], inputs: &[PathBuf]) -> Result<(), CliError> {
    for (index, output) in outputs.iter().enumerate() {
        let Output { what, path, .. } = *output;
        let found = std::fs::metadata(path).ok();
        if found.as_ref().is_some_and(Metadata::is_dir) {
            return Err(CliError::write(what, path, "it is a folder; give a file"));
        }
        let is_written = |found: &Metadata| !found.is_file() || standard_stream(found).is_some();
        if found.as_ref().is_some_and(is_written) {
            // Devices, pipes and standard streams are written to, not replaced.
            continue;
        }
        if inputs.iter().any(|input| is_same(input, path)) {
            let reason = "the command reads this file; give another one";
            return Err(CliError::write(what, path, reason));
        }
        if let Some(other) = outputs[..index].iter().find(|other| is_same(other.path, path)) {
            let reason = format!("{} goes to the same file; give another one", other.what);
            return Err(CliError::write(what, path, reason));
        }
        require_folder(what, path)?;
        if found.is_some() {
            require_own(output)?;
        }
    }
    Ok(())
}

/// Returns the files in a directory that a command reads.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Checks that files can be created in the folder of `path`.
fn require_folder(what: &'static str, path: &Path) -> Result<(), CliError> {
    // A link may lead to another folder.
    let target = resolved(path);
    let folder = folder_of(&target);
    if !folder.is_dir() {
        return Err(CliError::write(what, path, "there is no such folder; create it first"));
    }
    require_writable(folder).map_err(|error| CliError::write(what, path, error))
}

/// Checks that an existing file has the kind of the output.
fn require_own(output: &Output<'_>) -> Result<(), CliError> {
    let Output { what, path, begins } = *output;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(CHECKED_BYTES).read_to_end(&mut bytes))
        .map_err(|error| CliError::write(what, path, error))?;
    bytes.retain(|byte| !byte.is_ascii_whitespace());
    // A killed run may leave only the beginning.
    let begins = begins.as_bytes();
    if bytes.starts_with(begins) || begins.starts_with(&bytes) {
        return Ok(());
    }
    let reason = "it would replace a file of another kind; remove that file or give another one";
    Err(CliError::write(what, path, reason))
}

/// Returns whether `path` is or will be `folder` or inside it.
pub(crate) fn is_within(path: &Path, folder: &Path) -> bool {
    resolved(path).starts_with(resolved(folder))
}

/// Returns whether both paths are or will be the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    resolved(one) == resolved(other) || is_linked(one, other)
}

/// Resolves the links of the existing part of `path`.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        // A link may lead to a file that does not exist yet.
        let path = resolve_links(path).unwrap_or_else(|_| path.to_owned());
        match path.file_name() {
            Some(name) => resolved(folder_of(&path)).join(name),
            None => path,
        }
    })
}

/// Returns whether both are hard links to the same file.
#[cfg(unix)]
fn is_linked(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((number(one), number(other)), (Ok(left), Ok(right)) if left == right)
}

#[cfg(not(unix))]
fn is_linked(_: &Path, _: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(path: &Path) -> Output<'_> {
        Output { what: "the plot", path, begins: "<svg" }
    }

    #[test]
    fn a_file_is_replaced_only_by_one_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        let require = || require(&[output(&path)], &[]);
        require().unwrap();
        for own in ["", "  \n", "<svg width=\"3\">"] {
            std::fs::write(&path, own).unwrap();
            require().unwrap();
        }
        std::fs::write(&path, "years of work").unwrap();
        let error = require().unwrap_err().to_string();
        assert!(error.contains("another kind"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "years of work");
    }

    #[test]
    fn inputs_and_other_outputs_are_found_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "").unwrap();
        std::fs::hard_link(at("text"), at("linked")).unwrap();
        for name in ["text", "./text", "linked"] {
            let error = require(&[output(&at(name))], &[at("text")]).unwrap_err().to_string();
            assert!(error.contains("reads this file"), "{name}: {error}");
        }
        let [one, same] = [at("new"), at("./new")];
        let error = require(&[output(&one), output(&same)], &[]).unwrap_err().to_string();
        assert!(error.contains("goes to the same file"), "{error}");
        let null = Path::new("/dev/null");
        require(&[output(null), output(null)], &[]).unwrap();
    }
}
