//! The training loop: batches, metrics, held-out losses, checkpoints, and stopping on request.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpoint::{CheckpointDirectory, CheckpointError, HeldOutLoss, Kept};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::group::ProcessGroup;
use crate::trainer::{StepMetrics, Trainer};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// All steps are done.
    Done,
    /// The caller asked it to stop.
    Stopped,
    /// The held-out loss had no new minimum in as many measurements as [`HeldOut::patience`] says.
    EarlyStopped,
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step has ended.
    Step(StepMetrics),
    /// The loss on held-out data was measured.
    HeldOut(HeldOutLoss),
    /// A checkpoint between two steps could not be written. Training continues and writes the next
    /// one when it is due.
    NotSaved(&'a Error),
}

/// Held-out data, and when its loss is measured. It is always measured after the last step.
#[derive(Debug)]
pub struct HeldOut<'a> {
    /// The data.
    pub data: &'a Data,
    /// [`Evaluator::of`] the trainer of the run.
    pub evaluator: Evaluator,
    /// Steps between measurements; 0 measures only after the last step.
    pub every: u32,
    /// Measurements without a new minimum after which the run ends; `None` for no limit.
    pub patience: Option<u32>,
    /// Whether the run saves a checkpoint at each new lowest loss and keeps the last of them:
    /// [`CheckpointDirectory::best`](crate::checkpoint::CheckpointDirectory::best) names it.
    pub keep_best: bool,
}

impl<'a> HeldOut<'a> {
    /// Measures the loss on `data` every `every` steps.
    pub fn new(data: &'a Data, evaluator: Evaluator, every: u32) -> Self {
        Self { data, evaluator, every, patience: None, keep_best: false }
    }

    /// Whether a run with these losses ends early.
    fn is_over(&self, losses: &[HeldOutLoss]) -> bool {
        let Some(patience) = self.patience else { return false };
        let Some(best) = HeldOutLoss::best(losses) else { return false };
        losses.iter().filter(|found| found.steps > best.steps).count() as u32 >= patience
    }
}

/// A trainer with its data and its checkpoint directory.
#[derive(Debug)]
pub struct Run<'a> {
    /// The model in training.
    pub trainer: Trainer,
    /// The training data.
    pub data: &'a Data,
    /// The held-out data, if there is any.
    pub held_out: Option<HeldOut<'a>>,
    /// The directory for checkpoints, if any are written.
    pub checkpoints: Option<CheckpointDirectory>,
    /// Steps between checkpoints; 0 writes one only at the end.
    pub checkpoint_every: u32,
}

impl<'a> Run<'a> {
    /// Returns a run without held-out data and checkpoints.
    pub fn new(trainer: Trainer, data: &'a Data) -> Self {
        Self { trainer, data, held_out: None, checkpoints: None, checkpoint_every: 0 }
    }

    /// Trains up to step `until`, or until `stop` is set. `on` receives each event.
    ///
    /// A checkpoint is written at the end, also when stopped. If a loss is not finite, `latest`
    /// returns to the newest checkpoint that was followed by a step with a finite loss.
    ///
    /// # Errors
    /// Before the first step: the errors of [`Data::require_vocab`]. During training: the errors of
    /// [`Trainer`], and [`Error::HeldOutNotFinite`]. If the last checkpoint cannot be written, the
    /// trainer is unchanged.
    pub fn train(
        &mut self,
        until: u32,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<Ending> {
        self.require_vocab()?;
        let before = self.trainer.next_step();
        let ending = match self.steps(until, stop, on) {
            Ok(ending) => ending,
            Err(error) => return Err(self.with_checkpoint(error)),
        };
        let due = self.trainer.next_step() > before || self.newest().is_none();
        if self.decided_by_first(due)? {
            self.save()?;
        }
        self.trainer.gather_parameters()?;
        Ok(ending)
    }

    /// Checks that the model knows all tokens of the data.
    fn require_vocab(&self) -> Result<()> {
        let vocab = self.trainer.config().model.vocab;
        let held_out = self.held_out.as_ref().map(|held_out| held_out.data);
        held_out.into_iter().chain([self.data]).try_for_each(|data| data.require_vocab(vocab))
    }

    fn steps(
        &mut self,
        until: u32,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<Ending> {
        while self.trainer.next_step() < until {
            if self.stops(stop) {
                self.drain(on)?;
                return Ok(Ending::Stopped);
            }
            self.enqueue_next(on)?;
            let done = self.trainer.next_step();
            if self.measure(done, until, on)? && done < until {
                return Ok(Ending::EarlyStopped);
            }
            if done < until && done.is_multiple_of(self.checkpoint_every) {
                self.drain(on)?;
                self.save_between(on, |run| run.save().map(|_| ()))?;
            }
        }
        self.drain(on)?;
        Ok(Ending::Done)
    }

    /// Whether the run stops before the next step. With several ranks, a step carries the stop flag
    /// of one rank to all, and they stop together.
    fn stops(&mut self, stop: &AtomicBool) -> bool {
        let asked = self.trainer.group().is_some_and(ProcessGroup::is_asked_to_stop);
        let asked = asked || stop.load(Ordering::Relaxed);
        if self.trainer.group().is_none() {
            return asked;
        }
        if asked {
            self.trainer.request_stop();
        }
        let next = self.trainer.next_step();
        self.trainer.stops_before().is_some_and(|step| next >= step)
    }

    /// What the first rank has decided.
    fn decided_by_first(&self, decision: bool) -> Result<bool> {
        match self.trainer.group() {
            Some(group) => Ok(group.broadcast(|| Ok(decision.to_string()))? == "true"),
            None => Ok(decision),
        }
    }

    fn enqueue_next(&mut self, on: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let config = *self.trainer.config();
        let step = self.trainer.next_step();
        let batch = self.data.batch([config.batch, config.seq], config.seed, step)?;
        while let Some(metrics) = self.trainer.finished(self.trainer.is_full())? {
            on(Event::Step(metrics));
        }
        self.trainer.enqueue(&batch)
    }

    /// Measures the held-out loss if it is due after `done` steps. Returns whether the run ends
    /// early.
    fn measure(&mut self, done: u32, until: u32, on: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let due =
            |held_out: &&mut HeldOut<'_>| done == until || done.is_multiple_of(held_out.every);
        if self.held_out.as_mut().filter(due).is_none() {
            return Ok(false);
        }
        self.drain(on)?;
        self.trainer.gather_weights()?;
        if let Some(HeldOut { data, evaluator, .. }) = &mut self.held_out {
            let (sum, tokens) = evaluator.evaluate_part(data, self.trainer.ranks())?;
            let parts = self.trainer.gathered(&[sum, tokens as f64])?;
            let total = |at: usize| parts.iter().skip(at).step_by(2).sum::<f64>();
            let (loss, tokens) = ((total(0) / total(1)) as f32, total(1) as usize);
            let found = HeldOutLoss { steps: done, loss, tokens };
            on(Event::HeldOut(found));
            if !loss.is_finite() {
                return Err(Error::HeldOutNotFinite { steps: done, loss, kept: Kept::Nothing });
            }
            self.trainer.keep_held_out(found);
        }
        let Some(held_out) = &self.held_out else { return Ok(false) };
        let over = held_out.is_over(self.trainer.held_out());
        if held_out.keep_best && self.decided_by_first(self.is_best()?)? {
            self.save_between(on, Self::save_best)?;
        }
        Ok(over)
    }

    /// Whether the newest held-out loss is lower than the loss of the best checkpoint. Losses of
    /// steps that were not saved do not count.
    fn is_best(&self) -> Result<bool> {
        let (Some(directory), Some(newest)) = (&self.checkpoints, self.trainer.held_out().last())
        else {
            return Ok(false);
        };
        if self.trainer.ranks().rank > 0 {
            // The first rank decides.
            return Ok(false);
        }
        let saved = directory.best_loss(&self.trainer.header(self.data.fingerprint())?);
        Ok(saved.is_none_or(|saved| newest.loss < saved.loss))
    }

    /// Saves between two steps. A file that cannot be written does not end the run.
    fn save_between(
        &self,
        on: &mut dyn FnMut(Event<'_>),
        save: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        match save(self) {
            Err(error @ Error::Checkpoint(CheckpointError::Write { .. })) => {
                on(Event::NotSaved(&error));
                Ok(())
            }
            saved => saved,
        }
    }

    /// Writes a checkpoint and names it the best one.
    fn save_best(&self) -> Result<()> {
        match (&self.checkpoints, self.save()?) {
            (Some(directory), Some(path)) => directory.name_best(&path),
            _ => Ok(()),
        }
    }

    /// Reports all steps in flight.
    fn drain(&mut self, on: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        while let Some(metrics) = self.trainer.finished(true)? {
            on(Event::Step(metrics));
        }
        Ok(())
    }

    /// Writes a checkpoint, and returns its path in the rank that has written it.
    fn save(&self) -> Result<Option<PathBuf>> {
        match &self.checkpoints {
            Some(_) if self.trainer.ranks().rank > 0 => self.trainer.send_blocks().map(|()| None),
            Some(directory) => self.trainer.save(directory, self.data.fingerprint()).map(Some),
            None => Ok(None),
        }
    }

    fn newest(&self) -> Option<PathBuf> {
        self.checkpoints.as_ref().and_then(|directory| directory.latest().ok().flatten())
    }

    /// Adds the remaining checkpoint to the error and makes it the newest; also adds the rank whose
    /// gradients are not finite.
    fn with_checkpoint(&mut self, mut error: Error) -> Error {
        if let Error::NotFinite { step, rank, .. } = &mut error {
            *rank = self.culprit(*step, *rank);
        }
        match &mut error {
            Error::NotFinite { step, kept, .. }
            | Error::HeldOutNotFinite { steps: step, kept, .. } => *kept = self.kept_before(*step),
            _ => {}
        }
        error
    }

    /// The rank whose loss or gradients of a step are not finite, if that can be found out.
    fn culprit(&mut self, step: u32, known: Option<usize>) -> Option<usize> {
        let (config, data) = (*self.trainer.config(), self.data);
        let batch = |step| data.batch([config.batch, config.seq], config.seed, step);
        self.trainer.catch_up(step, batch).ok()?;
        known.or_else(|| self.trainer.culprit(step, &batch(step).ok()?).ok().flatten())
    }

    /// Returns the part of the run that remains if the weights before `step` are bad.
    fn kept_before(&self, step: u32) -> Kept {
        let Some(directory) = &self.checkpoints else { return Kept::Nothing };
        if self.trainer.ranks().rank > 0 {
            return self.newest().map_or(Kept::Nothing, Kept::Checkpoint);
        }
        let header = self.trainer.header(self.data.fingerprint());
        match header.and_then(|header| directory.return_before(step, &header)) {
            Ok(Some(path)) => Kept::Checkpoint(path),
            _ => self.newest().map_or(Kept::Nothing, Kept::Suspect),
        }
    }
}
