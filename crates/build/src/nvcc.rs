//! Compiles CUDA C++ to PTX by `nvcc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use retrograph_ptx::SmTarget;

use crate::error::Error;

/// One file to compile.
pub(crate) struct Compilation<'a> {
    pub(crate) nvcc: &'a Path,
    pub(crate) source: &'a Path,
    /// The target of the PTX.
    pub(crate) target: SmTarget,
    pub(crate) arguments: &'a [std::ffi::OsString],
    /// The output file; the list of read files is written next to it.
    pub(crate) ptx: &'a Path,
}

impl Compilation<'_> {
    /// The PTX, and the files that were read: the source and its headers.
    pub(crate) fn run(&self) -> Result<(String, Vec<PathBuf>), Error> {
        let Self { nvcc, source, target, arguments, ptx } = *self;
        let list = ptx.with_extension("d");
        let virtual_architecture = target.to_string().replacen("sm_", "compute_", 1);
        let mut command = Command::new(nvcc);
        command.arg("-ptx").arg(format!("-arch={virtual_architecture}")).args(arguments);
        command.arg("-MD").arg("-MF").arg(&list).arg(source).arg("-o").arg(ptx);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|source| Error::StartNvcc { nvcc: nvcc.to_owned(), source })?;
        if !output.status.success() {
            let log = [&output.stdout[..], &output.stderr].concat();
            let log = String::from_utf8_lossy(&log).trim().to_owned();
            let source_file = source.to_owned();
            return Err(Error::Nvcc { source_file, status: output.status, log });
        }
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
        };
        Ok((read(ptx)?, prerequisites(&read(&list)?)))
    }
}

/// Returns the prerequisites of a `make` rule, in which a backslash escapes a space or continues
/// the line.
fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let rule = rule.replace("\\\r\n", " ").replace("\\\n", " ");
    let Some((_, files)) = rule.split_once(" : ").or_else(|| rule.split_once(": ")) else {
        return Vec::new();
    };
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_rule_are_found_with_spaces_and_continued_lines() {
        let files = ["a.cu", "in clude/b.h", "c.h"].map(PathBuf::from);
        assert_eq!(prerequisites("out/a.ptx : a.cu \\\n    in\\ clude/b.h \\\n  c.h\n"), files);
        assert_eq!(prerequisites("a.ptx: a.cu in\\ clude/b.h c.h"), files);
        assert!(prerequisites("").is_empty());
    }
}
