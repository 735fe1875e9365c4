//! The checkpoint directory of a run: empty for a new run, with a checkpoint for a resumed one.

use std::path::Path;

use retrograph_finetune::checkpoint::{
    Checkpoint, CheckpointDirectory, CheckpointError, DirectoryLock,
};
use retrograph_finetune::{Error, ModelDirectory, TrainingConfig};

use crate::args::FinetuneArguments;
use crate::error::CliError;
use crate::screen::fact;

/// The checkpoint directory of a run, locked.
pub(crate) struct Checkpoints {
    pub(crate) directory: CheckpointDirectory,
    /// Held by the process that writes.
    _lock: Option<DirectoryLock>,
}

/// Checks that the directory is usable, before anything is read. Writes nothing.
pub(crate) fn require_usable(path: &Path, resume: bool) -> Result<(), CliError> {
    let directory = CheckpointDirectory::at(path);
    if !resume {
        return Ok(directory.require_empty()?);
    }
    directory.require_some().map_err(|error| match error {
        Error::Checkpoint(CheckpointError::Missing { path }) => CliError::NothingToResume(path),
        other => other.into(),
    })
}

impl Checkpoints {
    /// Locks an empty directory; creates it if it does not exist.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let directory = CheckpointDirectory::create(path)?;
        let _lock = Some(directory.lock()?);
        directory.require_empty()?;
        Ok(Self { directory, _lock })
    }

    /// Returns the directory of a run for a rank other than 0, which does not write to it.
    pub(crate) fn of_first_rank(path: &Path) -> Self {
        Self { directory: CheckpointDirectory::at(path), _lock: None }
    }

    /// Locks a directory and opens its newest checkpoint.
    pub(crate) fn resume(path: &Path, writes: bool) -> Result<(Self, Checkpoint), CliError> {
        let directory = CheckpointDirectory::at(path);
        let _lock = writes.then(|| directory.lock()).transpose()?;
        let checkpoint = directory.open_latest()?;
        let (file, next) = (checkpoint.path().display(), checkpoint.header().next_step);
        fact("resume", format!("{file} after step {next}"));
        if directory.latest()?.is_none() {
            fact("", "the newest complete checkpoint, as the file `latest` is missing");
        }
        Ok((Self { directory, _lock }, checkpoint))
    }
}

/// Returns the configuration of `checkpoint`, which must belong to the run `asked` for.
pub(crate) fn config(
    arguments: &FinetuneArguments,
    checkpoint: &Checkpoint,
    asked: &TrainingConfig,
    fingerprint: &str,
    base: Option<&ModelDirectory>,
) -> Result<TrainingConfig, CliError> {
    let header = checkpoint.header();
    header.require(asked, fingerprint)?;
    header.require_base(base)?;
    header.require_micro_batches(&arguments.step(), asked)?;
    header.require_optimizer(&arguments.training.given(&header.config.optimizer))?;
    let precision = header.config.precision.of_base(base);
    Ok(TrainingConfig { precision, ..header.config })
}
