//! Conversations as text: the chat template of a tokenizer, rendered as `transformers` does.

use minijinja::{Environment, Value, context};
use serde::Deserialize;

use super::python::{environment, without_generation_tags};
use super::settings::Settings;
use crate::hub::HubError;

/// The name of the one template in its environment.
const NAME: &str = "chat_template";

/// The role of messages that are learned.
pub(crate) const ASSISTANT: &str = "assistant";

/// Messages, and the tools that are offered.
#[derive(Clone, Debug, Deserialize)]
pub struct Conversation {
    messages: Vec<Value>,
    #[serde(default = "none")]
    tools: Value,
}

/// What templates are given in place of what is not there.
fn none() -> Value {
    Value::from(())
}

impl Conversation {
    /// A conversation of roles and what they say.
    pub fn new<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let message = |(role, content)| context! { role, content };
        Self { messages: messages.into_iter().map(message).collect(), tools: none() }
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether nobody says anything.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The conversation in which message `index` says `content` and nothing else.
    pub(crate) fn saying(&self, index: usize, content: &str) -> Self {
        let mut said = self.clone();
        if let Some(message) = said.messages.get_mut(index) {
            let role = message.get_attr("role").unwrap_or_default();
            *message = context! { role, content };
        }
        said
    }

    /// Whether any message is of the assistant.
    pub(crate) fn has_answer(&self) -> bool {
        (0..self.len()).any(|index| self.role(index).as_deref() == Some(ASSISTANT))
    }

    /// Who says the message `index`; `None` where it does not say so.
    pub fn role(&self, index: usize) -> Option<String> {
        let role = self.messages.get(index)?.get_attr("role").ok()?;
        role.as_str().map(str::to_owned)
    }
}

/// The chat template of a tokenizer.
///
/// Where it asks for the date, it is told the same one each day.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: Value,
}

impl ChatTemplate {
    /// The template of `settings`.
    pub(super) fn of(settings: &Settings) -> Result<Self, HubError> {
        let (path, text) = settings.template.as_ref().ok_or(HubError::NoChatTemplate)?;
        let mut environment = environment();
        environment
            .add_template_owned(NAME, without_generation_tags(text))
            .map_err(|error| HubError::json(path, reason(&error)))?;
        let Settings { bos, eos, pad, .. } = settings;
        // A token that there is not must be unknown to the template, and not none.
        let tokens = [("bos_token", bos), ("eos_token", eos), ("pad_token", pad)];
        let there = tokens.into_iter().filter_map(|(name, token)| Some((name, token.as_ref()?)));
        Ok(Self { environment, tokens: there.collect() })
    }

    /// The text of the first `count` messages; with `answer`, up to where the model is to speak.
    ///
    /// # Errors
    /// [`HubError::Chat`] with what the template refuses, such as roles in another order.
    ///
    /// # Panics
    /// When there are fewer messages.
    pub fn render(
        &self,
        conversation: &Conversation,
        count: usize,
        answer: bool,
    ) -> Result<String, HubError> {
        let failed = |error: minijinja::Error| HubError::Chat { why: reason(&error) };
        let template = self.environment.get_template(NAME).map_err(failed)?;
        let messages = &conversation.messages[..count];
        let own = context! {
            messages,
            tools => conversation.tools,
            documents => none(),
            add_generation_prompt => answer,
            ..self.tokens.clone()
        };
        template.render(own).map_err(failed)
    }
}

/// What went wrong, with the line of the template.
fn reason(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    error
        .line()
        .map_or_else(|| what.clone(), |line| format!("{what} (line {line} of the template)"))
}
