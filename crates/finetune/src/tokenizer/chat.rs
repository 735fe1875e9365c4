//! Conversations, and the chat template of a tokenizer, rendered as in `transformers`.

use std::path::Path;

use minijinja::{Value, context};
use serde::Deserialize;

use super::settings::Settings;
use super::template::Template;
use crate::hub::HubError;

/// The role of messages with loss.
pub(crate) const ASSISTANT: &str = "assistant";

/// Messages and tools.
#[derive(Clone, Debug, Deserialize)]
pub struct Conversation {
    messages: Vec<Value>,
    #[serde(default = "none")]
    tools: Value,
}

/// The value of an absent variable in templates.
fn none() -> Value {
    Value::from(())
}

impl Conversation {
    /// Returns a conversation of roles and contents.
    pub fn new<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let message = |(role, content)| context! { role, content };
        Self { messages: messages.into_iter().map(message).collect(), tools: none() }
    }

    /// Returns a conversation of JSON messages. The template gets all their fields.
    pub fn of(messages: &[serde_json::Value]) -> Self {
        Self { messages: messages.iter().map(Value::from_serialize).collect(), tools: none() }
    }

    /// Returns the conversation with `tools`, which the template renders.
    pub(crate) fn with_tools(self, tools: Option<serde_json::Value>) -> Self {
        Self { tools: tools.map_or_else(none, |tools| Value::from_serialize(&tools)), ..self }
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the conversation with message `index` replaced by its role and `content`.
    pub(crate) fn saying(&self, index: usize, content: &str) -> Self {
        let mut said = self.clone();
        if let Some(message) = said.messages.get_mut(index) {
            let role = message.get_attr("role").unwrap_or_default();
            *message = context! { role, content };
        }
        said
    }

    /// Returns the content of message `index`, if it is text.
    pub(crate) fn content(&self, index: usize) -> Option<String> {
        let content = self.messages.get(index)?.get_attr("content").ok()?;
        content.as_str().map(str::to_owned)
    }

    /// Returns the conversation with the contents of some messages replaced. Keeps their other
    /// fields.
    pub(crate) fn with_contents(&self, contents: &[(usize, String)]) -> Self {
        let mut changed = self.clone();
        for (index, content) in contents {
            if let Some(message) = changed.messages.get_mut(*index) {
                *message = context! { content, ..message.clone() };
            }
        }
        changed
    }

    /// Whether any message has the role `assistant`.
    pub(crate) fn has_answer(&self) -> bool {
        (0..self.len()).any(|index| self.role(index).as_deref() == Some(ASSISTANT))
    }

    /// Returns the role of message `index`; `None` if it has none.
    pub fn role(&self, index: usize) -> Option<String> {
        let role = self.messages.get(index)?.get_attr("role").ok()?;
        role.as_str().map(str::to_owned)
    }
}

/// The chat template of a tokenizer.
///
/// The date in templates is fixed, so the same conversation always has the same tokens.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    template: Template,
    tokens: Value,
}

impl ChatTemplate {
    /// Compiles the template of `settings`.
    pub(super) fn of(settings: &Settings) -> Result<Self, HubError> {
        let (path, text) = settings.template.as_ref().ok_or(HubError::NoChatTemplate)?;
        let template = Template::compile(path, text)?;
        let Settings { bos, eos, pad, .. } = settings;
        // A missing token must be undefined in the template, not none.
        let tokens = [("bos_token", bos), ("eos_token", eos), ("pad_token", pad)];
        let there = tokens.into_iter().filter_map(|(name, token)| Some((name, token.as_ref()?)));
        Ok(Self { template, tokens: there.collect() })
    }

    /// Compiles `text`, the template of the file `path`, without special tokens.
    ///
    /// # Errors
    /// [`HubError::Json`] for a syntax error, and [`HubError::TemplateLimit`] for a template that
    /// is too long.
    pub fn parse(path: &Path, text: &str) -> Result<Self, HubError> {
        let template = Template::compile(path, text)?;
        Ok(Self { template, tokens: context! {} })
    }

    /// Renders the first `count` messages; with `answer`, also the generation prompt.
    ///
    /// # Errors
    /// [`HubError::Chat`] with the error of the template, for example about the order of roles, and
    /// [`HubError::TemplateLimit`] for a template that takes too many steps or produces too much
    /// text.
    ///
    /// # Panics
    /// If there are fewer messages.
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
