//! Errors of checkpoints.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a checkpoint cannot be read, written or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The directory has no checkpoint.
    #[error("there is no checkpoint in `{}`; give the directory of a run", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no checkpoint with the lowest held-out loss.
    #[error("no run has kept its best checkpoint in `{}`; use the newest one", path.display())]
    NoBest {
        /// The directory.
        path: PathBuf,
    },
    /// A file that names a checkpoint names one that does not exist.
    #[error(
        "`{}` names `{name}`, which does not exist; restore that file, {}",
        pointer.display(), other(pointer, newest.as_deref())
    )]
    Absent {
        /// The file `latest` or `best`.
        pointer: PathBuf,
        /// The name in it.
        name: String,
        /// The newest file with the name of a checkpoint, if there is one.
        newest: Option<PathBuf>,
    },
    /// The directory of a new run already has checkpoints.
    #[error(
        "`{}` already has the checkpoint `{}`; continue that run, or give another directory",
        path.display(), file.file_name().unwrap_or_default().display()
    )]
    Exists {
        /// The directory.
        path: PathBuf,
        /// A file with the name of a checkpoint.
        file: PathBuf,
    },
    /// The path of the checkpoints is not a directory.
    #[error("`{}` is not a directory; give a directory for the checkpoints", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Another run writes to the directory.
    #[error(
        "another run uses the checkpoints in `{}`; wait until it ends, or give another directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint cannot be read.
    #[error(
        "the checkpoint `{}` cannot be read: {source}; make the file readable, or give another \
         directory",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not a checkpoint, or it is truncated or altered.
    #[error(
        "the checkpoint `{}` cannot be used: {reason}; resume from an earlier one by naming it in \
         the file `latest` of its directory",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A checkpoint belongs to another run.
    #[error(
        "the checkpoint is of another run: its {what} is {saved}, but {asked} is asked for; give \
         the options of the run that wrote it, or another directory"
    )]
    Mismatch {
        /// The field that differs.
        what: &'static str,
        /// The values in the checkpoint that differ, each with its field.
        saved: String,
        /// The requested values.
        asked: String,
    },
    /// A checkpoint cannot be written.
    #[error("the checkpoint `{}` cannot be written: {source}; {kept}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
        /// The checkpoint that remains.
        kept: Kept,
    },
}

/// Returns what to do instead of restoring the checkpoint that `pointer` names.
fn other(pointer: &Path, newest: Option<&Path>) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
    match newest {
        Some(newest) => format!(
            "or write the name of another checkpoint into `{}`; the newest is `{}`",
            name(pointer),
            name(newest)
        ),
        None => "or give another directory, as this one has no other checkpoint".to_owned(),
    }
}

/// The checkpoint that remains if a run cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// No checkpoint was written.
    Nothing,
    /// The newest checkpoint after which a loss was finite.
    Checkpoint(PathBuf),
    /// The only checkpoint; its weights gave the value that is not finite.
    Suspect(PathBuf),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no checkpoint was written before it"),
            Self::Checkpoint(path) => {
                write!(f, "the last good checkpoint is kept: {}", path.display())
            }
            Self::Suspect(path) => write!(
                f,
                "no checkpoint is known to be good: {} has the weights of this step",
                path.display()
            ),
        }
    }
}
