//! `ptxas` as a second opinion, if there is one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `ptxas`: named by `RETROGRAPH_PTXAS`, or fetched into `target/toolchain`.
pub(crate) fn find() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            if let Some(named) = std::env::var_os("RETROGRAPH_PTXAS") {
                let named = PathBuf::from(named);
                assert!(named.is_file(), "RETROGRAPH_PTXAS names no file: {}", named.display());
                return Some(named);
            }
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/toolchain");
            search(&root)
        })
        .as_deref()
}

fn search(folder: &Path) -> Option<PathBuf> {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.ends_with("ptxas") && path.is_file()).cloned();
    here.or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|path| search(path)))
}

/// Assembles `text` for `sm`. Returns `None` without `ptxas`, which is reported once.
pub(crate) fn assemble(text: &str, sm: &str) -> Option<Result<(), String>> {
    static SAID: OnceLock<()> = OnceLock::new();
    let Some(ptxas) = find() else {
        // Written to the stream itself, since the harness captures the output of passing tests.
        SAID.get_or_init(|| {
            let line = b"skipped: ptxas was not found; name it in RETROGRAPH_PTXAS\n";
            std::io::stderr().write_all(line).expect("standard error can be written");
        });
        return None;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, output) = (folder.path().join("a.ptx"), folder.path().join("a.cubin"));
    std::fs::write(&source, text).expect("the temporary folder can be written");
    let mut command = Command::new(ptxas);
    command.arg(format!("-arch={sm}")).arg(&source).arg("-o").arg(&output);
    let output = command.output().expect("ptxas can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    Some(if output.status.success() { Ok(()) } else { Err(said) })
}

/// Fails if there is a `ptxas` and it rejects `text`.
#[track_caller]
pub(crate) fn must_assemble(text: &str, sm: &str) {
    if let Some(Err(said)) = assemble(text, sm) {
        panic!("ptxas -arch={sm} says:\n{said}\nof:\n{text}");
    }
}
