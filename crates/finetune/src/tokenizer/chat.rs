//! Conversations as text: the chat template of a tokenizer, rendered as `transformers` does.

use std::path::Path;

use minijinja::{Value, context};
use serde::Deserialize;

use super::settings::Settings;
use super::template::Template;
use crate::hub::HubError;

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

    /// What message `index` says, if that is text.
    pub(crate) fn content(&self, index: usize) -> Option<String> {
        let content = self.messages.get(index)?.get_attr("content").ok()?;
        content.as_str().map(str::to_owned)
    }

    /// The conversation in which each of some messages says something else, apart from that
    /// unchanged.
    pub(crate) fn with_contents(&self, contents: &[(usize, String)]) -> Self {
        let mut changed = self.clone();
        for (index, content) in contents {
            if let Some(message) = changed.messages.get_mut(*index) {
                *message = context! { content, ..message.clone() };
            }
        }
        changed
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
    template: Template,
    tokens: Value,
}

impl ChatTemplate {
    /// The template of `settings`.
    pub(super) fn of(settings: &Settings) -> Result<Self, HubError> {
        let (path, text) = settings.template.as_ref().ok_or(HubError::NoChatTemplate)?;
        let template = Template::compile(path, text)?;
        let Settings { bos, eos, pad, .. } = settings;
        // A token that there is not must be unknown to the template, and not none.
        let tokens = [("bos_token", bos), ("eos_token", eos), ("pad_token", pad)];
        let there = tokens.into_iter().filter_map(|(name, token)| Some((name, token.as_ref()?)));
        Ok(Self { template, tokens: there.collect() })
    }

    /// The template of the file `path`, for which there are no special tokens.
    ///
    /// # Errors
    /// [`HubError::Json`] for a template that cannot be read, and [`HubError::TemplateLimit`] for
    /// one that is too long.
    pub fn parse(path: &Path, text: &str) -> Result<Self, HubError> {
        let template = Template::compile(path, text)?;
        Ok(Self { template, tokens: context! {} })
    }

    /// The text of the first `count` messages; with `answer`, up to where the model is to speak.
    ///
    /// # Errors
    /// [`HubError::Chat`] with what the template refuses, such as roles in another order, and
    /// [`HubError::TemplateLimit`] for a template that takes too many steps or makes too much text.
    ///
    /// # Panics
    /// When there are fewer messages.
    pub fn render(
        &self,
        conversation: &Conversation,
        count: usize,
        answer: bool,
    ) -> Result<String, HubError> {
        let messages = &conversation.messages[..count];
        let own = context! {
            messages,
            tools => conversation.tools,
            documents => none(),
            add_generation_prompt => answer,
            ..self.tokens.clone()
        };
        self.template.render(own, count)
    }
}
