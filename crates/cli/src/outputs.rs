//! Checks of the files that a command writes, before it does anything else.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use retrograph_finetune::temporary::{folder_of, require_writable};

use crate::error::CliError;

/// The most bytes of an existing file that are looked at.
const LOOKED_AT: u64 = 256;

/// A file that will be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    /// What it is called in messages.
    pub(crate) what: &'static str,
    pub(crate) path: &'a Path,
    /// What an earlier file of this kind begins with, without white space.
    pub(crate) begins: &'static str,
}

/// Fails unless every output can be written, replaces only a file of its own kind, and is neither
/// an input nor another output.
pub(crate) fn require(outputs: &[Output<'_>], inputs: &[PathBuf]) -> Result<(), CliError> {
    for (index, output) in outputs.iter().enumerate() {
        let Output { what, path, .. } = *output;
        let found = std::fs::metadata(path).ok();
        if found.as_ref().is_some_and(Metadata::is_dir) {
            return Err(CliError::write(what, path, "it is a folder; give a file"));
        }
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            // A device or a pipe is written to, not replaced.
            continue;
        }
        if inputs.iter().any(|input| is_same(input, path)) {
            let why = "the command reads this file; give another one";
            return Err(CliError::write(what, path, why));
        }
        if let Some(other) = outputs[..index].iter().find(|other| is_same(other.path, path)) {
            let why = format!("{} goes to the same file; give another one", other.what);
            return Err(CliError::write(what, path, why));
        }
        require_folder(what, path)?;
        if found.is_some() {
            require_own(output)?;
        }
    }
    Ok(())
}

/// The files in a directory that a command reads.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Fails unless files can be made in the folder of `path`.
fn require_folder(what: &'static str, path: &Path) -> Result<(), CliError> {
    // The file itself may be elsewhere than its link.
    let place = path.canonicalize();
    let folder = folder_of(place.as_deref().unwrap_or(path));
    if !folder.is_dir() {
        return Err(CliError::write(what, path, "there is no such folder; create it first"));
    }
    require_writable(folder).map_err(|error| CliError::write(what, path, error))
}

/// Fails if an existing file is none that this program wrote for the same purpose.
fn require_own(output: &Output<'_>) -> Result<(), CliError> {
    let Output { what, path, begins } = *output;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes))
        .map_err(|error| CliError::write(what, path, error))?;
    bytes.retain(|byte| !byte.is_ascii_whitespace());
    // A killed run may have left only the beginning.
    let begins = begins.as_bytes();
    if bytes.starts_with(begins) || begins.starts_with(&bytes) {
        return Ok(());
    }
    let why = "it would replace a file of another kind; remove that file or give another one";
    Err(CliError::write(what, path, why))
}

/// Whether `path` is `folder` or leads into it, or will.
pub(crate) fn is_within(path: &Path, folder: &Path) -> bool {
    place(path).starts_with(place(folder))
}

/// Whether both paths lead to one file, or will.
fn is_same(one: &Path, other: &Path) -> bool {
    place(one) == place(other) || is_linked(one, other)
}

/// Where `path` leads: the folders that are there, without links, and what will be in them.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match path.file_name() {
        Some(name) => place(folder_of(path)).join(name),
        None => path.to_owned(),
    })
}

/// Whether both are names of one file.
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
