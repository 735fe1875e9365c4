//! The directory of checkpoints of a run: empty for a new one, with a checkpoint for one that goes
//! on.

use std::path::Path;

use retrograph_finetune::checkpoint::{Checkpoint, CheckpointDirectory, DirectoryLock};
use retrograph_finetune::{Error, ModelDirectory, TrainingConfig};

use crate::args::FinetuneArguments;
use crate::error::CliError;
use crate::screen::fact;

/// Where checkpoints of a run go, locked for it, and the one from which it goes on.
pub(crate) struct Checkpoints {
    pub(crate) directory: CheckpointDirectory,
    pub(crate) resumed: Option<Checkpoint>,
    _lock: DirectoryLock,
}

/// Finds out whether a directory can be used, before anything is read. Nothing is written.
pub(crate) fn require_usable(path: &Path, resume: bool) -> Result<(), CliError> {
    let directory = CheckpointDirectory::at(path);
    if !resume {
        return Ok(directory.require_empty()?);
    }
    directory.require_some().map_err(|error| match error {
        Error::NoCheckpoint { path } => CliError::NothingToResume(path),
        other => other.into(),
    })
}

impl Checkpoints {
    /// Takes an empty directory, which is made if it is not there.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let directory = CheckpointDirectory::create(path)?;
        let _lock = directory.lock()?;
        directory.require_empty()?;
        Ok(Self { directory, resumed: None, _lock })
    }

    /// Opens the newest checkpoint of a directory.
    pub(crate) fn resume(path: &Path) -> Result<Self, CliError> {
        let directory = CheckpointDirectory::at(path);
        let _lock = directory.lock()?;
        let checkpoint = directory.open_latest()?;
        let (file, next) = (checkpoint.path().display(), checkpoint.header().next_step);
        fact("resume", format!("{file} after step {next}"));
        if directory.latest()?.is_none() {
            fact("", "the newest whole checkpoint, as the file `latest` is missing");
        }
        Ok(Self { directory, resumed: Some(checkpoint), _lock })
    }
}

/// The configuration of the run of `checkpoint`, if the run that is `asked` for is the same one.
pub(crate) fn config(
    arguments: &FinetuneArguments,
    checkpoint: &Checkpoint,
    (asked, fingerprint): (&TrainingConfig, &str),
    base: Option<&ModelDirectory>,
) -> Result<TrainingConfig, CliError> {
    let header = checkpoint.header();
    header.require(asked, fingerprint)?;
    header.require_base(base)?;
    header.require_division(&arguments.division.step(), asked)?;
    header.require_optimizer(&arguments.training.given(&header.config.optimizer))?;
    Ok(header.config)
}
