//! The thread that owns the device: it answers one request after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use retrograph_finetune::{Error, Sampling, StopReason, TextRequest};
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
    /// Closed when the client is gone.
    pub(super) reply: UnboundedSender<Event>,
}

/// A part of an answer. The channel has room for all: an answer has a maximum number of tokens.
#[derive(Debug)]
pub(super) enum Event {
    /// The next piece of text; it may be empty.
    Piece(String),
    /// The end.
    Done(Usage),
    /// There is no more.
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

/// Answers jobs until all senders are gone. With `cancel`, the current answer ends, and later jobs
/// are refused.
///
/// # Errors
/// If the device fails.
pub(super) fn work(
    engine: &mut Engine,
    mut jobs: UnboundedReceiver<Job>,
    (metrics, cancel): (&Arc<Metrics>, &AtomicBool),
) -> Result<(), Error> {
    while let Some(job) = jobs.blocking_recv() {
        // Clients that left while they waited.
        if job.reply.is_closed() {
            continue;
        }
        if cancel.load(Ordering::Relaxed) {
            let _ = job.reply.send(Event::Failed(ApiError::stopping()));
            continue;
        }
        metrics.start(job.received.elapsed());
        let answered = answer(engine, &job, (metrics, cancel));
        metrics.end();
        let failed = match answered {
            Ok(event) => {
                let _ = job.reply.send(event);
                continue;
            }
            Err(error) => error,
        };
        let message = failed.to_string();
        let _ = job.reply.send(Event::Failed(ApiError::failed(message)));
        if !of_request(&failed) {
            return Err(failed);
        }
    }
    Ok(())
}

/// Whether an error concerns one request. All others leave the device in an unknown state.
fn of_request(error: &Error) -> bool {
    matches!(
        error,
        Error::EmptyPrompt
            | Error::PromptTooLong { .. }
            | Error::TokenOutside { .. }
            | Error::InvalidConfig { .. }
            | Error::LogitsNotFinite { .. }
    )
}

fn answer(
    engine: &mut Engine,
    job: &Job,
    (metrics, cancel): (&Metrics, &AtomicBool),
) -> Result<Event, Error> {
    let ends = engine.ends.clone();
    let request = TextRequest {
        prompt: job.prompt.clone(),
        max_tokens: job.max_tokens,
        sampling: job.sampling,
        ends: &ends,
        stops: &job.stops,
    };
    let (generator, tokenizer) = engine.generator(job.adapter);
    let mut first = true;
    let generated = generator.text(tokenizer, &request, &mut |piece| {
        if std::mem::take(&mut first) {
            metrics.first_token(job.received.elapsed());
        }
        // Sending fails once the client is gone.
        let there = job.reply.send(Event::Piece(piece.to_owned())).is_ok();
        there && !cancel.load(Ordering::Relaxed)
    })?;
    let (prompt, completion) = (job.prompt.len(), generated.tokens.len());
    metrics.tokens(prompt, completion);
    let reason = match generated.stop_reason {
        StopReason::Token(_) | StopReason::StopString => "stop",
        StopReason::MaxTokens | StopReason::CacheFull => "length",
        StopReason::Callback => return Ok(Event::Failed(ApiError::stopping())),
    };
    Ok(Event::Done(Usage { reason, prompt, completion }))
}
