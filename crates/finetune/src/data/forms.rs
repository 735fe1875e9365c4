//! Conversion of ShareGPT and Alpaca lines to conversations.
//!
//! ShareGPT: `conversations`, a list of messages with `from` and `value`. Alpaca: `instruction`,
//! `input`, which may be empty, and `output`; optionally `system` and `history`, earlier pairs of
//! an instruction and its output.

use serde::Deserialize;

use crate::tokenizer::{ASSISTANT, Conversation};

/// Senders of ShareGPT messages, and the role of each.
const SENDERS: [(&str, &str); 10] = [
    ("human", "user"),
    ("user", "user"),
    ("prompter", "user"),
    ("gpt", ASSISTANT),
    ("chatgpt", ASSISTANT),
    ("model", ASSISTANT),
    ("assistant", ASSISTANT),
    ("system", "system"),
    ("tool", "tool"),
    ("observation", "tool"),
];

/// A ShareGPT message.
#[derive(Debug, Deserialize)]
pub(super) struct ShareGptMessage {
    from: Option<String>,
    value: Option<String>,
}

/// An Alpaca line.
#[derive(Debug)]
pub(super) struct Alpaca {
    pub(super) instruction: String,
    pub(super) input: Option<String>,
    pub(super) output: String,
    pub(super) system: Option<String>,
    pub(super) history: Vec<[String; 2]>,
}

/// Returns the messages of a ShareGPT conversation, or why they cannot be used. `system` becomes
/// the first message.
pub(super) fn share_gpt(
    messages: Vec<ShareGptMessage>,
    system: Option<&str>,
    tools: Option<serde_json::Value>,
) -> Result<Conversation, String> {
    if messages.is_empty() {
        return Err("`conversations` is empty".to_owned());
    }
    let mut turns: Vec<(&str, String)> = Vec::with_capacity(messages.len() + 1);
    turns.extend(system.map(|text| ("system", text.to_owned())));
    for (index, ShareGptMessage { from, value }) in messages.into_iter().enumerate() {
        let number = index + 1;
        let Some(from) = from else { return Err(format!("message {number} has no `from`")) };
        let Some(value) = value else { return Err(format!("message {number} has no `value`")) };
        let Some((_, role)) = SENDERS.iter().find(|(name, _)| *name == from) else {
            let names = SENDERS.map(|(name, _)| name).join(", ");
            return Err(format!("message {number} is from `{from}`, which is not one of {names}"));
        };
        turns.push((role, value));
    }
    let turns = turns.iter().map(|(role, text)| (*role, text.as_str()));
    Ok(Conversation::new(turns).with_tools(tools))
}

impl Alpaca {
    /// Returns the line as a conversation, for a tokenizer with a chat template.
    pub(super) fn conversation(&self) -> Conversation {
        let user = self.user();
        let mut turns: Vec<(&str, &str)> = Vec::new();
        turns.extend(self.system.as_deref().map(|text| ("system", text)));
        for [asked, said] in &self.history {
            turns.extend([("user", asked.as_str()), (ASSISTANT, said)]);
        }
        turns.extend([("user", user.as_str()), (ASSISTANT, &self.output)]);
        Conversation::new(turns)
    }

    /// Returns prompt and completion, for a tokenizer without a chat template.
    pub(super) fn completion(&self) -> [String; 2] {
        let mut prompt = String::new();
        let system = self.system.iter().cloned();
        let past = self.history.iter().map(|[asked, said]| section(asked, said));
        for part in system.chain(past) {
            prompt.push_str(&part);
            prompt.push_str("\n\n");
        }
        prompt.push_str(&section(&self.user(), ""));
        [prompt, self.output.clone()]
    }

    /// The instruction, followed by its input.
    fn user(&self) -> String {
        match self.input.as_deref() {
            None | Some("") => self.instruction.clone(),
            Some(input) => format!("{}\n{input}", self.instruction),
        }
    }
}

/// A turn under the headings of Alpaca.
fn section(asked: &str, said: &str) -> String {
    format!("### Instruction:\n{asked}\n\n### Response:\n{said}")
}
