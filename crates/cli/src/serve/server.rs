//! The state of the server, and the conversion of requests to jobs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use retrograph_finetune::{
    ChatTemplate, Conversation, GenerationConfig, HubError, Sampling, TextRequest, Tokenizer,
};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::metrics::Metrics;
use super::request::{ApiRequest, Chat, Completion, Prompt};
use super::worker::{Event, Job};

/// The state that all requests share.
pub(super) struct Server {
    /// The name of the base model, followed by the names of the adapters.
    pub(super) names: Vec<String>,
    pub(super) tokenizer: Tokenizer,
    pub(super) template: Option<ChatTemplate>,
    pub(super) defaults: GenerationConfig,
    pub(super) vocab: usize,
    pub(super) capacity: usize,
    pub(super) max_tokens: usize,
    /// Maximum bytes of a request body.
    pub(super) max_body: usize,
    /// The digest of the API key, if one is required.
    pub(super) key: Option<[u8; 32]>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) slots: Arc<Semaphore>,
    /// Cloned for each [`Unsent`] request.
    pub(super) unsent: Arc<()>,
    /// Maximum number of requests that wait.
    pub(super) queue: usize,
    /// Maximum number of requests that wait or are being answered.
    pub(super) most: usize,
    pub(super) jobs: UnboundedSender<Job>,
    /// Seconds since 1970 at the start.
    pub(super) started: u64,
    pub(super) counter: AtomicU64,
}

/// A checked request.
pub(super) struct Prepared {
    pub(super) model: usize,
    /// `Some` if the answer is streamed: whether it ends with the token counts.
    pub(super) streams: Option<bool>,
    prompt: Vec<u32>,
    max_tokens: usize,
    sampling: Sampling,
    stops: Vec<String>,
}

/// An answer in progress. Dropping it ends the answer.
pub(super) struct Answer {
    pub(super) events: UnboundedReceiver<Event>,
    pub(super) _unsent: Unsent,
}

/// A request whose answer is not completely sent. The server waits for it when it stops.
pub(super) struct Unsent(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Server {
    /// Whether `header` has the key. Compares digests, so that timing reveals nothing about the
    /// key.
    pub(super) fn admits(&self, header: Option<&str>) -> bool {
        let Some(expected) = &self.key else { return true };
        let given = header.and_then(|header| header.split_once(' '));
        given.is_some_and(|(scheme, key)| {
            let is_bearer = scheme.eq_ignore_ascii_case("Bearer");
            is_bearer && Sha256::digest(key.trim()).as_slice() == expected
        })
    }

    /// Checks a completion request.
    pub(super) fn completion(
        &self,
        request: &ApiRequest<Completion>,
    ) -> Result<Prepared, ApiError> {
        let tokens = |text: &str| {
            let request = TextRequest::new(&self.tokenizer, text, Sampling::greedy());
            request.map(|request| request.prompt).map_err(invalid)
        };
        let prompt = match &request.own.prompt {
            Prompt::Text(text) => tokens(text)?,
            Prompt::Tokens(tokens) => tokens.clone(),
            Prompt::Texts(texts) => match texts.as_slice() {
                [text] => tokens(text)?,
                _ => return Err(ApiError::invalid("only one prompt is supported")),
            },
        };
        self.prepare(prompt, request)
    }

    /// Checks a chat completion request, and renders its messages.
    pub(super) fn chat(&self, request: &ApiRequest<Chat>) -> Result<Prepared, ApiError> {
        let template = self.template.as_ref().ok_or(HubError::NoChatTemplate).map_err(invalid)?;
        let conversation = Conversation::of(&request.own.messages()?);
        let greedy = Sampling::greedy();
        let prompt = TextRequest::answer(&self.tokenizer, template, &conversation, greedy);
        self.prepare(prompt.map_err(invalid)?.prompt, request)
    }

    fn prepare<T>(&self, prompt: Vec<u32>, request: &ApiRequest<T>) -> Result<Prepared, ApiError> {
        request.require_supported()?;
        let common = &request.common;
        let model = self.model(common.model.as_deref())?;
        if prompt.is_empty() {
            return Err(ApiError::invalid("the prompt has no token"));
        }
        if prompt.len() >= self.capacity {
            return Err(ApiError::context(prompt.len(), self.capacity));
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= self.vocab) {
            let vocab = self.vocab;
            let reason =
                format!("the prompt has token {token}, but the model has only {vocab} tokens");
            return Err(ApiError::invalid(reason));
        }
        Ok(Prepared {
            model,
            streams: common.streams(),
            max_tokens: common.tokens(self.max_tokens)?,
            sampling: common.sampling(&self.defaults, random())?,
            stops: common.stops()?,
            prompt,
        })
    }

    /// Returns the index of a model in `names`; 0, the base model, if no name is given.
    pub(super) fn model(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let Some(name) = name else { return Ok(0) };
        let found = self.names.iter().position(|known| known == name);
        found.ok_or_else(|| ApiError::model(name, &self.names.join(", ")))
    }

    /// Counts a request until its answer is sent.
    pub(super) fn unsent(&self) -> Unsent {
        Unsent(self.unsent.clone())
    }

    /// Acquires a slot in the queue.
    pub(super) fn slot(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let slot = self.slots.clone().try_acquire_owned();
        slot.map_err(|_| ApiError::busy(self.queue))
    }

    /// Puts a request into the queue. The slot becomes free when the answer is generated, even if
    /// the client does not read it.
    pub(super) fn submit(
        &self,
        prepared: Prepared,
        slot: OwnedSemaphorePermit,
        unsent: Unsent,
    ) -> Result<Answer, ApiError> {
        let (reply, events) = unbounded_channel();
        let Prepared { model, prompt, max_tokens, sampling, stops, .. } = prepared;
        let adapter = model.checked_sub(1);
        let received = Instant::now();
        let job = Job { adapter, prompt, max_tokens, sampling, stops, received, slot, reply };
        self.jobs.send(job).map_err(|_| ApiError::stopping())?;
        Ok(Answer { events, _unsent: unsent })
    }

    /// Returns the metrics as text.
    pub(super) fn metrics(&self) -> String {
        self.metrics.text(self.most - self.slots.available_permits().min(self.most))
    }

    /// Returns an identifier of a response.
    pub(super) fn id(&self, kind: &str) -> String {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("{kind}-{:016x}{number:08x}", random())
    }
}

fn invalid(error: impl ToString) -> ApiError {
    ApiError::invalid(error.to_string())
}

/// Returns a random number: the keys of a hasher are random.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
