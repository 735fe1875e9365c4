//! The thread that owns the device. It answers one request per slot concurrently.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use retrograph_finetune::generate::{Advance, Event as TextEvent};
use retrograph_finetune::{Error, GenerationBatch, Request, Sampling, TextStream, Tokenizer};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::error::ApiError;
use super::metrics::Metrics;
use crate::engine::Engine;

/// A request that waits for its answer.
pub(super) struct Job {
    pub(super) adapter: Option<usize>,
    pub(super) prompt: Vec<u32>,
    pub(super) max_tokens: usize,
    pub(super) sampling: Sampling,
    pub(super) stops: Vec<String>,
    pub(super) received: Instant,
    /// The place in the queue, which is free when the job ends.
    pub(super) slot: OwnedSemaphorePermit,
    /// Closed when the client disconnects.
    pub(super) reply: UnboundedSender<Event>,
}

/// A part of an answer. The channel is unbounded, but the number of tokens of an answer is limited.
#[derive(Debug)]
pub(super) enum Event {
    /// The next piece of text; it may be empty.
    Piece(String),
    /// The end.
    Done(Usage),
    /// The answer failed.
    Failed(ApiError),
}

/// The end of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// `stop` or `length`.
    pub(super) reason: &'static str,
    pub(super) prompt: usize,
    pub(super) completion: usize,
}

/// Answers jobs until all senders are dropped. `cancel` ends all answers and refuses later jobs.
/// Returns the number of jobs that `cancel` ended or refused.
///
/// # Errors
/// If the device fails.
pub(super) fn work(
    engine: Engine,
    jobs: UnboundedReceiver<Job>,
    metrics: &Metrics,
    cancel: &AtomicBool,
) -> Result<usize, Error> {
    let (tokenizer, ends) = (engine.tokenizer.clone(), engine.ends.clone());
    let models = engine.into_batches()?.into_iter().map(Model::new).collect();
    let (tokenizer, ends) = (&tokenizer, ends.as_slice());
    let waiting = VecDeque::new();
    Worker { models, waiting, tokenizer, ends, metrics, cancel, ended: 0 }.run(jobs)
}

/// The models on the device, and the waiting jobs.
struct Worker<'a> {
    /// The model without an adapter, then with each adapter.
    models: Vec<Model<'a>>,
    waiting: VecDeque<Job>,
    tokenizer: &'a Tokenizer,
    /// Tokens that end an answer.
    ends: &'a [u32],
    metrics: &'a Metrics,
    cancel: &'a AtomicBool,
    /// Jobs that ended without an answer, although their clients were connected.
    ended: usize,
}

/// A batch, and the answer in each of its slots.
struct Model<'a> {
    batch: GenerationBatch,
    answers: Vec<Option<Answer<'a>>>,
}

/// An answer in progress.
struct Answer<'a> {
    job: Job,
    text: TextStream<'a>,
    completion: usize,
}

impl Worker<'_> {
    fn run(mut self, mut jobs: UnboundedReceiver<Job>) -> Result<usize, Error> {
        loop {
            if self.waiting.is_empty() && !self.models.iter().any(|model| model.batch.is_active()) {
                let Some(job) = jobs.blocking_recv() else { return Ok(self.ended) };
                self.waiting.push_back(job);
            }
            while let Ok(job) = jobs.try_recv() {
                self.waiting.push_back(job);
            }
            // Drop jobs whose clients disconnected.
            self.waiting.retain(|job| !job.reply.is_closed());
            if self.cancel.load(Ordering::Relaxed) {
                self.end_all(&ApiError::stopping());
            }
            let done = self.start().and_then(|()| self.step());
            if let Err(error) = done {
                self.end_all(&ApiError::failed(error.to_string()));
                return Err(error);
            }
        }
    }

    /// Starts the jobs for which there is a slot, in the order of their arrival.
    fn start(&mut self) -> Result<(), Error> {
        for job in std::mem::take(&mut self.waiting) {
            let model = &mut self.models[job.adapter.map_or(0, |adapter| adapter + 1)];
            if model.batch.free_slot().is_none() {
                self.waiting.push_back(job);
                continue;
            }
            self.metrics.start(job.received.elapsed());
            let request = Request {
                prompt: &job.prompt,
                max_tokens: job.max_tokens,
                sampling: job.sampling,
                eos: self.ends,
            };
            match model.batch.start(&request) {
                Ok(slot) => {
                    let text = TextStream::new(self.tokenizer, &job.stops);
                    model.answers[slot] = Some(Answer { job, text, completion: 0 });
                }
                Err(error) => {
                    self.metrics.end();
                    job.end(Event::Failed(ApiError::failed(error.to_string())));
                    if !of_request(&error) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one step of each model and distributes its results.
    fn step(&mut self) -> Result<(), Error> {
        for model in &mut self.models {
            for Advance { slot, event } in model.batch.step()? {
                let Some(answer) = &mut model.answers[slot] else { continue };
                let Some(last) = answer.advance(&event, self.metrics) else { continue };
                model.batch.stop(slot);
                if let Some(answer) = model.answers[slot].take() {
                    answer.end(last, self.metrics);
                }
            }
        }
        Ok(())
    }

    /// Ends all answers, and refuses the jobs that wait.
    fn end_all(&mut self, error: &ApiError) {
        for model in &mut self.models {
            for (slot, answer) in model.answers.iter_mut().enumerate() {
                let Some(answer) = answer.take() else { continue };
                model.batch.stop(slot);
                self.ended += usize::from(!answer.job.reply.is_closed());
                answer.end(Event::Failed(error.clone()), self.metrics);
            }
        }
        self.ended += self.waiting.len();
        for job in self.waiting.drain(..) {
            job.end(Event::Failed(error.clone()));
        }
    }
}

impl Job {
    /// Frees the slot and sends the last event, in this order: a client may send its next request
    /// as soon as it has the event.
    fn end(self, last: Event) {
        drop(self.slot);
        let _ = self.reply.send(last);
    }
}

impl Model<'_> {
    fn new(batch: GenerationBatch) -> Self {
        let answers = (0..batch.slots()).map(|_| None).collect();
        Self { batch, answers }
    }
}

impl Answer<'_> {
    /// Sends the result of a step. Returns the last event of the answer, if it ends.
    fn advance(&mut self, event: &TextEvent, metrics: &Metrics) -> Option<Event> {
        let reason = match *event {
            TextEvent::Token(token) => {
                if self.completion == 0 {
                    metrics.first_token(self.job.received.elapsed());
                }
                self.completion += 1;
                let (piece, stopped) = self.text.push(token);
                // Sending fails once the client has disconnected.
                let there = self.job.reply.send(Event::Piece(piece)).is_ok();
                return match (stopped, there) {
                    (true, _) => Some(Event::Done(self.usage("stop"))),
                    (false, false) => Some(Event::Failed(ApiError::stopping())),
                    (false, true) => None,
                };
            }
            TextEvent::NotFinite { position } => {
                let error = Error::LogitsNotFinite { position };
                return Some(Event::Failed(ApiError::failed(error.to_string())));
            }
            TextEvent::EndedBy(_) => "stop",
            TextEvent::Full => "length",
        };
        let rest = self.text.clone().finish();
        let _ = self.job.reply.send(Event::Piece(rest));
        Some(Event::Done(self.usage(reason)))
    }

    fn usage(&self, reason: &'static str) -> Usage {
        Usage { reason, prompt: self.job.prompt.len(), completion: self.completion }
    }

    fn end(self, last: Event, metrics: &Metrics) {
        metrics.tokens(self.job.prompt.len(), self.completion);
        metrics.end();
        self.job.end(last);
    }
}

/// Whether an error concerns only one request. Other errors leave the device in an unknown state.
fn of_request(error: &Error) -> bool {
    matches!(
        error,
        Error::EmptyPrompt
            | Error::PromptTooLong { .. }
            | Error::TokenOutside { .. }
            | Error::InvalidConfig { .. }
    )
}
