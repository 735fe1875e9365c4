//! Requests of the OpenAI API: supported and refused fields.

use retrograph_finetune::{GenerationConfig, Sampling};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

use super::error::ApiError;
use crate::args::SamplingArguments;

/// Maximum number of stop strings.
const MAX_STOPS: usize = 16;

/// A request with the fields of its kind, `T`.
#[derive(Debug)]
pub(super) struct ApiRequest<T> {
    pub(super) own: T,
    pub(super) common: Common,
    /// All fields, including unsupported ones.
    all: Map<String, Value>,
}

/// The fields that both kinds of requests share.
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "it must be a text or a list of texts")]
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

/// The fields of a completion request.
#[derive(Debug, Deserialize)]
pub(super) struct Completion {
    pub(super) prompt: Prompt,
}

/// A prompt as text or as tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "it must be a text, a list with one text or a list of tokens")]
pub(super) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

/// The fields of a chat completion request.
#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    messages: Vec<Message>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    /// All other fields; the template gets them.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "it must be a text or a list of parts")]
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

/// Values of unsupported fields that equal leaving the field out.
const NO_EFFECT: [(&str, &[&str]); 23] = [
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
    ("add_generation_prompt", &["true"]),
    ("continue_final_message", &["false"]),
    ("chat_template_kwargs", &["{}"]),
    ("chat_template", &["null"]),
    ("documents", &["[]"]),
];

impl<T: DeserializeOwned> ApiRequest<T> {
    /// Parses the body of a request. Errors name the field.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut text = serde_json::Deserializer::from_slice(body);
        let all: Map<String, Value> = fields(&mut text)?;
        text.end().map_err(ApiError::body)?;
        Ok(Self { own: fields(&all)?, common: fields(&all)?, all })
    }
}

/// Deserializes fields; an error begins with the path of the field, such as `messages[0].content`.
///
/// With `serde(flatten)`, errors would have no path.
fn fields<'de, T: Deserialize<'de>>(from: impl Deserializer<'de>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(from).map_err(ApiError::body)
}

impl<T> ApiRequest<T> {
    /// Fails if an unsupported field would change the answer.
    pub(super) fn require_supported(&self) -> Result<(), ApiError> {
        for (name, harmless) in NO_EFFECT {
            let Some(value) = self.all.get(name).filter(|value| !value.is_null()) else {
                continue;
            };
            if !harmless.contains(&value.to_string().as_str()) {
                let only = harmless.join(" or ");
                let reason = format!("{name} is {value}, but only {only} is supported");
                return Err(ApiError::invalid(reason));
            }
        }
        Ok(())
    }
}

impl Common {
    /// `Some` if the answer is streamed: whether it ends with the token counts.
    pub(super) fn streams(&self) -> Option<bool> {
        let usage = self.stream_options.as_ref().is_some_and(|options| options.include_usage);
        self.stream.unwrap_or(false).then_some(usage)
    }

    /// Returns the sampling parameters, with `defaults` from the model and `seed` if there is none.
    pub(super) fn sampling(
        &self,
        defaults: &GenerationConfig,
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

    /// Returns the maximum tokens of the answer; `max` is the limit and the default.
    pub(super) fn tokens(&self, max: usize) -> Result<usize, ApiError> {
        match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => Err(ApiError::invalid("max_tokens must be at least 1")),
            Some(asked) if asked > max => {
                let reason =
                    format!("max_tokens is {asked}, above the limit of {max} of this server");
                Err(ApiError::invalid(reason))
            }
            asked => Ok(asked.unwrap_or(max)),
        }
    }

    /// Returns the stop strings.
    pub(super) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            Stop::None => Vec::new(),
            Stop::One(text) => vec![text.clone()],
            Stop::Many(texts) => texts.clone(),
        };
        if stops.len() > MAX_STOPS || stops.iter().any(String::is_empty) {
            let reason = format!("stop must be up to {MAX_STOPS} strings that are not empty");
            return Err(ApiError::invalid(reason));
        }
        Ok(stops)
    }
}

impl Chat {
    /// Returns the messages with all their fields. Contents are texts.
    pub(super) fn messages(&self) -> Result<Vec<Value>, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages is empty"));
        }
        self.messages.iter().enumerate().map(|(index, message)| message.json(index)).collect()
    }
}

impl Message {
    /// Returns message `index` as JSON. Only calls of tools may replace its content.
    fn json(&self, index: usize) -> Result<Value, ApiError> {
        let calls = self.others.get("tool_calls").is_some_and(|calls| !calls.is_null());
        let content = match &self.content {
            Some(content) => Value::String(content.text()?),
            None if calls => Value::Null,
            None => {
                return Err(ApiError::body(format!("messages[{index}]: missing field `content`")));
            }
        };
        let mut fields = self.others.clone();
        fields.insert("role".to_owned(), self.role.clone().into());
        fields.insert("content".to_owned(), content);
        Ok(Value::Object(fields))
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
                        let reason =
                            format!("a content part of type {kind:?}, but only text is supported");
                        Err(ApiError::invalid(reason))
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

    /// A completion with further fields.
    fn parsed(mut fields: Value) -> Result<ApiRequest<Completion>, ApiError> {
        fields.as_object_mut().unwrap().entry("prompt").or_insert(json!("a"));
        ApiRequest::parse(fields.to_string().as_bytes())
    }

    fn common(fields: Value) -> Common {
        parsed(fields).unwrap().common
    }

    #[test]
    fn fields_of_clients_are_read() {
        let found = parsed(json!({
            "model": "m", "max_tokens": 3, "temperature": 0.5, "stop": ["a", "b"], "seed": -1,
            "stream": true, "stream_options": { "include_usage": true }, "user": "me", "n": 1,
            "presence_penalty": 0.0, "tools": [], "logit_bias": null,
        }));
        let found = found.unwrap();
        found.require_supported().unwrap();
        let found = found.common;
        assert_eq!((found.tokens(10).unwrap(), found.streams()), (3, Some(true)));
        assert_eq!(found.stops().unwrap(), ["a", "b"]);
        let sampling = found.sampling(&GenerationConfig::default(), 7).unwrap();
        assert_eq!((sampling.temperature, sampling.seed), (0.5, u64::MAX));
        let plain = common(json!({}));
        assert_eq!((plain.tokens(10).unwrap(), plain.streams()), (10, None));
        assert_eq!(plain.sampling(&GenerationConfig::default(), 7).unwrap().seed, 7);
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
            ("chat_template_kwargs", json!({ "enable_thinking": false })),
            ("continue_final_message", json!(true)),
            ("add_generation_prompt", json!(false)),
        ] {
            let error = parsed(json!({ name: value })).unwrap().require_supported().unwrap_err();
            assert!(error.message.contains(name), "{}", error.message);
        }
        assert!(common(json!({ "max_tokens": 11 })).tokens(10).is_err());
        assert!(common(json!({ "max_tokens": 0 })).tokens(10).is_err());
        assert!(common(json!({ "stop": "" })).stops().is_err());
        let hot = common(json!({ "temperature": -1.0 }));
        assert!(hot.sampling(&GenerationConfig::default(), 0).is_err());
    }

    #[test]
    fn a_wrong_value_is_refused_under_the_name_of_its_field() {
        let refused = |body: &str| ApiRequest::<Completion>::parse(body.as_bytes()).unwrap_err();
        let chat = |body: &str| ApiRequest::<Chat>::parse(body.as_bytes()).unwrap_err();
        for (error, words) in [
            (parsed(json!({ "temperature": "hot" })).unwrap_err(), "temperature: invalid type"),
            (parsed(json!({ "top_k": -1 })).unwrap_err(), "top_k: invalid value: integer `-1`"),
            (parsed(json!({ "stop": 7 })).unwrap_err(), "stop: it must be a text or a list"),
            (parsed(json!({ "prompt": {} })).unwrap_err(), "prompt: it must be a text, a list"),
            (
                parsed(json!({ "stream_options": { "include_usage": 1 } })).unwrap_err(),
                "stream_options.include_usage: invalid type",
            ),
            (refused(r#"{ "top_p": 1e999 }"#), "top_p: number out of range"),
            (refused("{}"), "missing field `prompt`"),
            (refused("{"), "EOF while parsing"),
            (refused("[]"), "invalid type: sequence"),
            (refused(r#"{ "prompt": "a" } x"#), "trailing characters"),
            (
                chat(r#"{ "messages": [{ "role": "user", "content": 7 }] }"#),
                "messages[0].content: it must be a text or a list of parts",
            ),
            (chat(r#"{ "messages": [{ "content": "a" }] }"#), "messages[0]: missing field"),
        ] {
            let begins = format!("the request cannot be used: {words}");
            assert!(error.message.starts_with(&begins), "{words}: {}", error.message);
        }
    }

    #[test]
    fn contents_may_have_parts() {
        let chat = |content: Value| -> Chat {
            let messages = json!([{ "role": "user", "content": content }]);
            let body = json!({ "messages": messages }).to_string();
            ApiRequest::parse(body.as_bytes()).unwrap().own
        };
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
        let joined = json!({ "role": "user", "content": "ab" });
        assert_eq!(chat(parts).messages().unwrap(), [joined]);
        let image = json!([{ "type": "image_url", "image_url": {} }]);
        assert!(chat(image).messages().is_err());
        let error = chat(Value::Null).messages().unwrap_err().message;
        assert!(error.ends_with("messages[0]: missing field `content`"), "{error}");
    }

    #[test]
    fn the_template_gets_all_fields_of_messages() {
        let call = json!([{ "type": "function", "function": { "name": "f", "arguments": {} } }]);
        let messages = json!([
            { "role": "user", "content": "a", "name": "Ann" },
            { "role": "assistant", "content": null, "tool_calls": call },
            { "role": "tool", "content": "7", "tool_call_id": "x" },
        ]);
        let body = json!({ "messages": messages }).to_string();
        let chat: Chat = ApiRequest::parse(body.as_bytes()).unwrap().own;
        assert_eq!(Value::Array(chat.messages().unwrap()), messages);
    }
}
