//! Runs a step exactly once, or returns an error that says whether any of it ran.

use retrograph_driver::hot_path::{MAX_PREFETCH_BYTES, prefetch};
use retrograph_driver::{OutsideCapture, Result, Stream, nvtx};

use super::Program;
use super::error::{StepError, is_lost};
use super::policy::{Policy, Strategy};
use super::reason::GraphFailure;
use crate::pass::Controls;

/// A step that was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepOutcome {
    /// How it was submitted.
    pub strategy: Strategy,
    /// Its number, from 0.
    pub index: u64,
}

/// A step uses at most seven cache lines of its program.
const _: () = assert!(std::mem::offset_of!(Program, memory) <= 6 * 64);

impl Program {
    /// Enqueues one step on `stream`, after the program's earlier steps. Returns without waiting
    /// for it, unless the host is several steps ahead of the device or a failed graph is retried
    /// (see [`super::RETRY_AFTER`]).
    ///
    /// # Errors
    /// See [`StepError`]. After [`StepError::Incomplete`] or a lost context, every later step fails
    /// with the original cause.
    pub fn step(&mut self, stream: &Stream, controls: &Controls) -> Result<StepOutcome, StepError> {
        let _range = nvtx::range(c"retrograph: step");
        if let Some(failed) = &self.failed {
            return Err(StepError::GivenUp { cause: failed.clone() });
        }
        self.attempt(stream, controls).inspect_err(|error| {
            let ended = match error {
                StepError::NotStarted { cause } => is_lost(cause),
                StepError::Incomplete { .. } | StepError::ParametersOutOfStep { .. } => true,
                _ => false,
            };
            if ended {
                tracing::error!(%error, "the program is given up");
                self.failed = Some(Box::new(error.clone()));
            }
        })
    }

    fn attempt(&mut self, stream: &Stream, controls: &Controls) -> Result<StepOutcome, StepError> {
        let bytes = controls.complete(&self.controls)?;
        let stream = self.before_step(stream).map_err(|cause| StepError::NotStarted { cause })?;
        self.with_controls(&stream, bytes, Self::run)?;
        let index = self.steps;
        self.steps += 1;
        self.retries.stepped();
        let strategy = self.replay.as_ref().map_or(Strategy::Eager, |replay| {
            self.prefetch_next(&stream, bytes);
            replay.strategy
        });
        Ok(StepOutcome { strategy, index })
    }

    /// Prefetches, while the device is busy, the cache lines of the next step, which the launch of
    /// a large graph evicts.
    fn prefetch_next(&self, stream: &Stream, controls: &[u8]) {
        prefetch(self, std::mem::offset_of!(Self, memory) + 64);
        prefetch(controls.as_ptr(), controls.len().min(MAX_PREFETCH_BYTES));
        if let Some(ring) = &self.ring {
            ring.prefetch_next();
        }
        stream.prefetch();
    }

    /// Prepares a step before its first operation, and blocks captures until it is enqueued. Can be
    /// repeated if it fails.
    fn before_step<'a>(&mut self, stream: &'a Stream) -> Result<OutsideCapture<'a>> {
        self.context.same(stream.context(), "the stream")?;
        if self.retries.due() {
            // A stream that another thread captures is not a failure of the graph.
            stream.require_outside_capture("a step")?;
            self.retry_graph(stream);
        }
        let stream = stream.outside_capture("a step")?;
        self.after_last_step(&stream)?;
        // Before anything is enqueued, so that later work also waits for a partly enqueued step.
        self.mark(&stream);
        self.retired.release_finished();
        if self.options.nan_transients {
            self.memory.fill_transients_with_nan(&stream)?;
        }
        Ok(stream)
    }

    /// Writes `controls` for the device to fetch, and calls `enqueue`, which enqueues the fetch.
    /// Withdraws controls that no launch fetches.
    pub(super) fn with_controls(
        &mut self,
        stream: &OutsideCapture<'_>,
        controls: &[u8],
        enqueue: impl FnOnce(&mut Self, &OutsideCapture<'_>) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        if let Some(ring) = &mut self.ring {
            ring.put(stream, controls)?;
        }
        let outcome = enqueue(self, stream);
        let fetches = self.sequence.fetches_parameters;
        let accepted = match &outcome {
            Ok(()) => true,
            Err(StepError::Incomplete { enqueued, .. }) => fetches.is_some_and(|at| at < *enqueued),
            Err(_) => false,
        };
        match &mut self.ring {
            Some(ring) if accepted => ring.accepted(),
            Some(ring) => ring.withdraw(),
            None => {}
        }
        outcome
    }

    /// Enqueues only the operation that fetches the controls.
    pub(super) fn fetch_parameters(
        &mut self,
        stream: &OutsideCapture<'_>,
    ) -> Result<(), StepError> {
        let Some(at) = self.sequence.fetches_parameters else { return Ok(()) };
        // SAFETY: as in `enqueue_all`.
        let outcome = unsafe { self.sequence.steps[at].command.enqueue(stream, false) };
        outcome.map_err(|cause| StepError::NotStarted { cause })
    }

    /// Orders `stream` after the last step, possibly on another stream: both use the same
    /// transients and control block. Programs that share an arena wait for each other.
    pub(super) fn after_last_step(&mut self, stream: &OutsideCapture<'_>) -> Result<()> {
        self.context.same(stream.context(), "the stream")?;
        if let Some(share) = self.share() {
            share.after_last_step(stream)?;
        }
        self.last.order_after(stream)
    }

    fn run(&mut self, stream: &OutsideCapture<'_>) -> Result<(), StepError> {
        let Some(replay) = &mut self.replay else { return self.enqueue_all(stream) };
        // SAFETY: `before_step` has made the context current, and compared it with the stream's.
        match unsafe { replay.exec.launch_prepared(stream) } {
            Ok(()) => Ok(()),
            // The driver enqueues a graph as a whole or not at all, so an eager step instead
            // happens once.
            Err(cause) if self.options.policy != Policy::Auto || is_lost(&cause) => {
                Err(StepError::NotStarted { cause })
            }
            Err(cause) => {
                self.fall_back(GraphFailure::Launch { cause });
                self.enqueue_all(stream)
            }
        }
    }

    /// Enqueues one operation after another.
    pub(super) fn enqueue_all(&self, stream: &OutsideCapture<'_>) -> Result<(), StepError> {
        let operations = self.sequence.steps.len();
        for (enqueued, step) in self.sequence.steps.iter().enumerate() {
            let pdl = self.uses_pdl(step, self.options.pdl);
            // SAFETY: the program keeps everything that the command accesses alive until its last
            // step has finished, and orders its steps.
            let outcome = unsafe { step.command.enqueue(stream, pdl) };
            // A library may have enqueued part of its work before it failed.
            let whole = !step.is_library_call();
            outcome.map_err(|cause| match enqueued {
                0 if whole => StepError::NotStarted { cause },
                _ => {
                    let operation = step.name.clone();
                    StepError::Incomplete { operation, enqueued, operations, cause }
                }
            })?;
        }
        Ok(())
    }
}
