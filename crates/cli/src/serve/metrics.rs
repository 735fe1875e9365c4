//! Metrics in OpenMetrics text format, for Prometheus.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::text`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = [(&'static str, String); 2];

/// The metrics of the server.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    waiting: Gauge,
    running: Gauge,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    queue_seconds: Histogram,
    first_token_seconds: Histogram,
}

impl Metrics {
    pub(super) fn new() -> Self {
        // From 1 ms to about 2 minutes.
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 18));
        let mut registry = Registry::with_prefix("retrograph");
        let requests = Family::default();
        let (waiting, running) = (Gauge::default(), Gauge::default());
        let (prompt_tokens, completion_tokens) = (Counter::default(), Counter::default());
        let (queue_seconds, first_token_seconds) = (seconds(), seconds());
        let help = "Answered and refused requests by path and status";
        registry.register("requests", help, requests.clone());
        registry.register("requests_waiting", "Requests in the queue", waiting.clone());
        registry.register("requests_running", "Requests being answered", running.clone());
        registry.register("prompt_tokens", "Tokens of answered prompts", prompt_tokens.clone());
        registry.register("completion_tokens", "Generated tokens", completion_tokens.clone());
        let help = "Seconds from the request to the start of its answer";
        registry.register("queue_seconds", help, queue_seconds.clone());
        let help = "Seconds from the request to its first token";
        registry.register("first_token_seconds", help, first_token_seconds.clone());
        Self {
            registry,
            requests,
            waiting,
            running,
            prompt_tokens,
            completion_tokens,
            queue_seconds,
            first_token_seconds,
        }
    }

    /// Counts a response.
    pub(super) fn response(&self, path: &str, status: u16) {
        let labels = [("path", path.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts the start of an answer, after `waited`.
    pub(super) fn start(&self, waited: Duration) {
        self.running.inc();
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// Counts the end of an answer.
    pub(super) fn end(&self) {
        self.running.dec();
    }

    /// Counts the first token of an answer, after `waited`.
    pub(super) fn first_token(&self, waited: Duration) {
        self.first_token_seconds.observe(waited.as_secs_f64());
    }

    /// Counts the tokens of an answer.
    pub(super) fn tokens(&self, prompt: usize, completion: usize) {
        self.prompt_tokens.inc_by(prompt as u64);
        self.completion_tokens.inc_by(completion as u64);
    }

    /// Returns all metrics as text; `taken` requests wait or are being answered.
    pub(super) fn text(&self, taken: usize) -> String {
        self.waiting.set((taken as i64 - self.running.get()).max(0));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
