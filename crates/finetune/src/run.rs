//! A run from its first step to its last: batches, metrics, what is held out, checkpoints, and
//! stopping when asked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpoint::{CheckpointDirectory, HeldOutLoss};
use crate::data::Data;
use crate::error::{Error, Kept, Result};
use crate::evaluate::Evaluator;
use crate::trainer::{StepMetrics, Trainer};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done.
    Done,
    /// Somebody asked it to stop.
    Stopped,
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A step has ended.
    Step(StepMetrics),
    /// What is held out was measured.
    HeldOut(HeldOutLoss),
    /// A checkpoint between two steps could not be written. Training goes on, and writes the next
    /// one when it is due.
    NotSaved(&'a Error),
}

/// What is held out, and when it is measured: at the last step, and before.
#[derive(Debug)]
pub struct HeldOut<'a> {
    /// What is measured.
    pub data: &'a Data,
    /// [`Evaluator::of`] the trainer of the run.
    pub evaluator: Evaluator,
    /// Steps from one time to the next; 0 for the end only.
    pub every: u32,
}

/// A trainer with its data and the place of its checkpoints.
#[derive(Debug)]
pub struct Run<'a> {
    /// The model in training.
    pub trainer: Trainer,
    /// What it learns from.
    pub data: &'a Data,
    /// What it is measured by, if by anything.
    pub held_out: Option<HeldOut<'a>>,
    /// Where checkpoints go, if anywhere.
    pub checkpoints: Option<CheckpointDirectory>,
    /// Steps between checkpoints; 0 for one at the end only.
    pub checkpoint_every: u32,
}

impl<'a> Run<'a> {
    /// A run that measures nothing on the way and keeps no checkpoints.
    pub fn new(trainer: Trainer, data: &'a Data) -> Self {
        Self { trainer, data, held_out: None, checkpoints: None, checkpoint_every: 0 }
    }

    /// Trains up to step `until`, or until `stop` is set. `on` is told what happens.
    ///
    /// A checkpoint is written at the end, also when stopped. When a loss is not finite, the newest
    /// checkpoint becomes the last one that a step with a finite loss followed.
    ///
    /// # Errors
    /// Those of [`Trainer`], [`Error::HeldOutNotFinite`], and those of the last checkpoint, after
    /// which the trainer is as it was.
    pub fn train(
        &mut self,
        until: u32,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Event<'_>),
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
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<Ending> {
        while self.trainer.next_step() < until {
            if stop.load(Ordering::Relaxed) {
                self.drain(on)?;
                return Ok(Ending::Stopped);
            }
            self.one(on)?;
            let done = self.trainer.next_step();
            self.measure(done, until, on)?;
            if done < until && done.is_multiple_of(self.checkpoint_every) {
                self.drain(on)?;
                match self.save() {
                    Err(error @ Error::WriteCheckpoint { .. }) => on(Event::NotSaved(&error)),
                    saved => saved?,
                }
            }
        }
        self.drain(on)?;
        Ok(Ending::Done)
    }

    fn one(&mut self, on: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let config = *self.trainer.config();
        let step = self.trainer.next_step();
        let batch = self.data.batch([config.batch, config.seq], config.seed, step)?;
        while let Some(metrics) = self.trainer.finished(self.trainer.is_full())? {
            on(Event::Step(metrics));
        }
        self.trainer.enqueue(&batch)
    }

    /// Measures what is held out, if it is time for that.
    fn measure(&mut self, done: u32, until: u32, on: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let due =
            |held_out: &&mut HeldOut<'_>| done == until || done.is_multiple_of(held_out.every);
        if self.held_out.as_mut().filter(due).is_none() {
            return Ok(());
        }
        self.drain(on)?;
        if let Some(HeldOut { data, evaluator, .. }) = &mut self.held_out {
            let evaluation = evaluator.evaluate(data)?;
            let (loss, tokens) = (evaluation.loss as f32, evaluation.tokens);
            let found = HeldOutLoss { steps: done, loss, tokens };
            on(Event::HeldOut(found));
            if !loss.is_finite() {
                return Err(Error::HeldOutNotFinite { steps: done, loss, kept: Kept::Nothing });
            }
            self.trainer.keep_held_out(found);
        }
        Ok(())
    }

    /// Hands out all steps that are under way.
    fn drain(&mut self, on: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        while let Some(metrics) = self.trainer.finished(true)? {
            on(Event::Step(metrics));
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

    /// Says in the error which checkpoint is left, and makes that one the newest.
    fn with_checkpoint(&self, mut error: Error) -> Error {
        match &mut error {
            Error::NotFinite { step, kept, .. }
            | Error::HeldOutNotFinite { steps: step, kept, .. } => *kept = self.kept_before(*step),
            _ => {}
        }
        error
    }

    /// What is left of the run when the weights before `step` are not good.
    fn kept_before(&self, step: u32) -> Kept {
        let Some(directory) = &self.checkpoints else { return Kept::Nothing };
        let header = self.trainer.header(self.data.fingerprint());
        match header.and_then(|header| directory.return_before(step, &header)) {
            Ok(Some(path)) => Kept::Checkpoint(path),
            _ => self.newest().map_or(Kept::Nothing, Kept::Suspect),
        }
    }
}
