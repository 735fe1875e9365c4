//! A run from its first step to its last: batches, metrics, checkpoints, and stopping when asked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpoint::CheckpointDirectory;
use crate::data::TextData;
use crate::error::{Error, Kept, Result};
use crate::trainer::{StepMetrics, Trainer};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done.
    Done,
    /// Somebody asked it to stop.
    Stopped,
}

/// A trainer with its text and the place of its checkpoints.
#[derive(Debug)]
pub struct Run<'a> {
    /// The model in training.
    pub trainer: Trainer,
    /// The text.
    pub data: &'a TextData,
    /// Where checkpoints go, if anywhere.
    pub checkpoints: Option<CheckpointDirectory>,
    /// Steps between checkpoints; 0 for one at the end only.
    pub checkpoint_every: u32,
}

impl Run<'_> {
    /// Trains up to step `until`, or until `stop` is set. `on` is told of each step that ended.
    ///
    /// A checkpoint is written at the end, also when stopped.
    ///
    /// # Errors
    /// Those of [`Trainer`] and of the checkpoint. The newest checkpoint stays as it is.
    pub fn train(
        &mut self,
        until: u32,
        stop: &AtomicBool,
        on: &mut dyn FnMut(&StepMetrics),
    ) -> Result<Ending> {
        let before = self.trainer.next_step();
        let ending = self.steps(until, stop, on).map_err(|error| self.with_checkpoint(error))?;
        if self.trainer.next_step() > before || self.newest().is_none() {
            self.save()?;
        }
        Ok(ending)
    }

    fn steps(
        &mut self,
        until: u32,
        stop: &AtomicBool,
        on: &mut dyn FnMut(&StepMetrics),
    ) -> Result<Ending> {
        while self.trainer.next_step() < until {
            if stop.load(Ordering::Relaxed) {
                self.drain(on)?;
                return Ok(Ending::Stopped);
            }
            self.one(on)?;
            let done = self.trainer.next_step();
            if done < until && done.is_multiple_of(self.checkpoint_every) {
                self.drain(on)?;
                self.save()?;
            }
        }
        self.drain(on)?;
        Ok(Ending::Done)
    }

    fn one(&mut self, on: &mut dyn FnMut(&StepMetrics)) -> Result<()> {
        let config = *self.trainer.config();
        let step = self.trainer.next_step();
        let batch = self.data.batch([config.batch, config.seq], config.seed, step)?;
        while let Some(metrics) = self.trainer.finished(self.trainer.is_full())? {
            on(&metrics);
        }
        self.trainer.enqueue(&batch)
    }

    /// Hands out all steps that are under way.
    fn drain(&mut self, on: &mut dyn FnMut(&StepMetrics)) -> Result<()> {
        while let Some(metrics) = self.trainer.finished(true)? {
            on(&metrics);
        }
        Ok(())
    }

    fn save(&self) -> Result<()> {
        if let Some(directory) = &self.checkpoints {
            self.trainer.save(directory, self.data.fingerprint())?;
        }
        Ok(())
    }

    fn newest(&self) -> Option<PathBuf> {
        self.checkpoints.as_ref().and_then(|directory| directory.latest().ok().flatten())
    }

    /// Says in the error which checkpoint is left.
    fn with_checkpoint(&self, error: Error) -> Error {
        match (error, self.newest()) {
            (Error::NotFinite { step, loss, norm, .. }, Some(path)) => {
                Error::NotFinite { step, loss, norm, kept: Kept::Checkpoint(path) }
            }
            (error, _) => error,
        }
    }
}
