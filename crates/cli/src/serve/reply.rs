//! Responses of the OpenAI API.

use serde_json::{Value, json};

use super::worker::Usage;

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

impl Kind {
    /// The prefix of identifiers.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Completion => "cmpl",
            Self::Chat => "chatcmpl",
        }
    }
}

/// The fields that all chunks of an answer share.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
}

impl Reply {
    /// Returns an answer in one piece.
    pub(super) fn whole(&self, text: &str, usage: Usage) -> Value {
        let (object, key, content) = match self.kind {
            Kind::Completion => ("text_completion", "text", json!(text)),
            Kind::Chat => {
                let message = json!({ "role": "assistant", "content": text });
                ("chat.completion", "message", message)
            }
        };
        let reason = usage.reason;
        let choice = json!({ "index": 0, key: content, "logprobs": null, "finish_reason": reason });
        self.part(object, json!([choice]), Some(usage))
    }

    /// Returns the first chunk of a streamed answer to a conversation.
    pub(super) fn start(&self) -> Value {
        self.choice(json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// Returns a chunk with text.
    pub(super) fn piece(&self, text: &str) -> Value {
        match self.kind {
            Kind::Completion => self.choice(json!(text), Value::Null),
            Kind::Chat => self.choice(json!({ "content": text }), Value::Null),
        }
    }

    /// Returns the chunk after the text, with the finish reason.
    pub(super) fn end(&self, reason: &str) -> Value {
        let nothing = if self.kind == Kind::Chat { json!({}) } else { json!("") };
        self.choice(nothing, json!(reason))
    }

    /// Returns the last chunk, with the token counts.
    pub(super) fn usage(&self, usage: Usage) -> Value {
        self.part(self.streamed(), json!([]), Some(usage))
    }

    fn choice(&self, content: Value, reason: Value) -> Value {
        let key = if self.kind == Kind::Chat { "delta" } else { "text" };
        let choice = json!({ "index": 0, key: content, "logprobs": null, "finish_reason": reason });
        self.part(self.streamed(), json!([choice]), None)
    }

    /// Returns the object type of the chunks of a streamed answer.
    fn streamed(&self) -> &'static str {
        match self.kind {
            Kind::Completion => "text_completion",
            Kind::Chat => "chat.completion.chunk",
        }
    }

    fn part(&self, object: &str, choices: Value, usage: Option<Usage>) -> Value {
        let mut part = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if let Some(Usage { prompt, completion, .. }) = usage {
            part["usage"] = json!({
                "prompt_tokens": prompt, "completion_tokens": completion,
                "total_tokens": prompt + completion,
            });
        }
        part
    }
}
