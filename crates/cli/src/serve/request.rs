//! Requests of the OpenAI API: the fields that are used, and those that are refused.

use retrograph_finetune::{GenerationDefaults, Sampling};
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use crate::args::SamplingArguments;

/// Maximum number of stop strings.
const MOST_STOPS: usize = 16;

/// The fields of both kinds of requests.
#[derive(Debug, Deserialize)]
pub(super) struct Common {
    pub(super) model: Option<String>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    #[serde(default)]
    stop: Stop,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Fields that are not supported unless they have no effect.
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "stop must be a text or a list of texts")]
enum Stop {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// A request for a completion.
#[derive(Debug, Deserialize)]
pub(super) struct Completion {
    pub(super) prompt: Prompt,
    #[serde(flatten)]
    pub(super) common: Common,
}

/// A prompt as text or as tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "prompt must be a text, a list with one text or a list of tokens")]
pub(super) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

/// A request for an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    messages: Vec<Message>,
    #[serde(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "content must be a text or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// Values that mean the same as no field.
const NO_EFFECT: [(&str, &[&str]); 18] = [
    ("n", &["1"]),
    ("best_of", &["1"]),
    ("echo", &["false"]),
    ("logprobs", &["false"]),
    ("top_logprobs", &["0"]),
    ("suffix", &["\"\""]),
    ("presence_penalty", &["0", "0.0"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("logit_bias", &["{}"]),
    ("tools", &["[]"]),
    ("functions", &["[]"]),
    ("tool_choice", &["\"none\"", "\"auto\""]),
    ("response_format", &["{\"type\":\"text\"}"]),
    ("modalities", &["[\"text\"]"]),
    // Fields of other servers.
    ("min_p", &["0", "0.0"]),
    ("min_tokens", &["0"]),
    ("stop_token_ids", &["[]"]),
    ("ignore_eos", &["false"]),
];

impl Common {
    /// Whether the answer is streamed, and whether its end tells the tokens.
    pub(super) fn streams(&self) -> Option<bool> {
        let usage = self.stream_options.as_ref().is_some_and(|options| options.include_usage);
        self.stream.unwrap_or(false).then_some(usage)
    }

    /// Returns the sampling parameters, with `defaults` from the model and `seed` if there is none.
    pub(super) fn sampling(
        &self,
        defaults: &GenerationDefaults,
        seed: u64,
    ) -> Result<Sampling, ApiError> {
        let arguments = SamplingArguments {
            greedy: false,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed.map_or(seed, |seed| seed as u64),
        };
        let sampling = arguments.resolve(defaults);
        sampling.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(sampling)
    }

    /// Returns the most tokens of the answer.
    pub(super) fn tokens(&self, most: usize) -> Result<usize, ApiError> {
        match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => Err(ApiError::invalid("max_tokens must be at least 1")),
            Some(asked) if asked > most => {
                let why =
                    format!("max_tokens is {asked}, above the limit of {most} of this server");
                Err(ApiError::invalid(why))
            }
            asked => Ok(asked.unwrap_or(most)),
        }
    }

    /// Returns the stop strings.
    pub(super) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            Stop::None => Vec::new(),
            Stop::One(text) => vec![text.clone()],
            Stop::Many(texts) => texts.clone(),
        };
        if stops.len() > MOST_STOPS || stops.iter().any(String::is_empty) {
            let why = format!("stop must be up to {MOST_STOPS} strings that are not empty");
            return Err(ApiError::invalid(why));
        }
        Ok(stops)
    }

    /// Fails for a field that would change the answer and is not supported.
    pub(super) fn require_supported(&self) -> Result<(), ApiError> {
        for (name, harmless) in NO_EFFECT {
            let Some(value) = self.others.get(name).filter(|value| !value.is_null()) else {
                continue;
            };
            if !harmless.contains(&value.to_string().as_str()) {
                let only = harmless.join(" or ");
                let why = format!("{name} is {value}, but only {only} is supported");
                return Err(ApiError::invalid(why));
            }
        }
        Ok(())
    }
}

impl Chat {
    /// Returns roles and contents.
    pub(super) fn messages(&self) -> Result<Vec<(&str, String)>, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages is empty"));
        }
        let message = |message: &'_ Message| message.content.text();
        let texts = self.messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        Ok(self.messages.iter().map(|message| message.role.as_str()).zip(texts).collect())
    }
}

impl Content {
    /// Returns the text, which may be in parts.
    fn text(&self) -> Result<String, ApiError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Parts(parts) => parts
                .iter()
                .map(|part| match (part.kind.as_str(), &part.text) {
                    ("text", Some(text)) => Ok(text.as_str()),
                    (kind, _) => {
                        let why =
                            format!("a content part of type {kind:?}, but only text is supported");
                        Err(ApiError::invalid(why))
                    }
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn common(value: Value) -> Common {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn fields_of_clients_are_read() {
        let found = common(json!({
            "model": "m", "max_tokens": 3, "temperature": 0.5, "stop": ["a", "b"], "seed": -1,
            "stream": true, "stream_options": { "include_usage": true }, "user": "me", "n": 1,
            "presence_penalty": 0.0, "tools": [], "logit_bias": null,
        }));
        found.require_supported().unwrap();
        assert_eq!((found.tokens(10).unwrap(), found.streams()), (3, Some(true)));
        assert_eq!(found.stops().unwrap(), ["a", "b"]);
        let sampling = found.sampling(&GenerationDefaults::default(), 7).unwrap();
        assert_eq!((sampling.temperature, sampling.seed), (0.5, u64::MAX));
        let plain = common(json!({}));
        assert_eq!((plain.tokens(10).unwrap(), plain.streams()), (10, None));
        assert_eq!(plain.sampling(&GenerationDefaults::default(), 7).unwrap().seed, 7);
    }

    #[test]
    fn fields_that_would_change_the_answer_are_refused() {
        for (name, value) in [
            ("n", json!(2)),
            ("tools", json!([{}])),
            ("frequency_penalty", json!(0.5)),
            ("logprobs", json!(5)),
            ("response_format", json!({ "type": "json_object" })),
            ("min_p", json!(0.5)),
            ("stop_token_ids", json!([1])),
        ] {
            let error = common(json!({ name: value })).require_supported().unwrap_err();
            assert!(error.message.contains(name), "{}", error.message);
        }
        assert!(common(json!({ "max_tokens": 11 })).tokens(10).is_err());
        assert!(common(json!({ "max_tokens": 0 })).tokens(10).is_err());
        assert!(common(json!({ "stop": "" })).stops().is_err());
        let hot = common(json!({ "temperature": -1.0 }));
        assert!(hot.sampling(&GenerationDefaults::default(), 0).is_err());
    }

    #[test]
    fn contents_may_have_parts() {
        let chat = |content: Value| -> Chat {
            let messages = json!([{ "role": "user", "content": content }]);
            serde_json::from_value(json!({ "messages": messages })).unwrap()
        };
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
        assert_eq!(chat(parts).messages().unwrap(), [("user", "ab".to_owned())]);
        let image = json!([{ "type": "image_url", "image_url": {} }]);
        assert!(chat(image).messages().is_err());
    }
}
