//! Examples from the lines of a file, each of them an object of JSON.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{DataError, Example};
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

/// Told how many bytes of how many are done.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Which forms the lines have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// Lines of `text`.
    pub texts: usize,
    /// Lines of `prompt` and `completion`.
    pub completions: usize,
    /// Lines of `messages`.
    pub conversations: usize,
}

/// The fields of a line that are read; others may stand beside them.
#[derive(Debug, Deserialize)]
struct Line {
    text: Option<String>,
    prompt: Option<String>,
    completion: Option<String>,
    messages: Option<IgnoredAny>,
}

/// Reads the examples of `path`. Empty lines are passed over.
///
/// # Errors
/// [`DataError::Read`], [`DataError::Empty`], or [`DataError::Malformed`] with every line that
/// cannot be used and the reason. The error of a missing chat template is one of its own.
pub fn read_jsonl(
    path: &Path,
    tokenizer: &Tokenizer,
    on: Progress<'_>,
) -> Result<(Vec<Example>, Forms)> {
    let file = std::fs::read(path).map_err(DataError::read(path))?;
    let text = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&file);
    let mut reader = Reader { tokenizer, template: None, forms: Forms::default() };
    let (mut examples, mut malformed, mut done) = (Vec::new(), Vec::new(), 0);
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        done += line.len() + 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match reader.example(line.trim_ascii_end())? {
            Ok(example) => examples.push(example),
            Err(why) => malformed.push((number + 1, why)),
        }
        on(done.min(text.len()), text.len());
    }
    let (path, lines) = (path.to_owned(), examples.len() + malformed.len());
    if !malformed.is_empty() {
        return Err(DataError::Malformed { path, lines, malformed }.into());
    }
    if examples.is_empty() {
        return Err(DataError::Empty { path }.into());
    }
    Ok((examples, reader.forms))
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    /// Made for the first line that needs it.
    template: Option<ChatTemplate>,
    forms: Forms,
}

impl Reader<'_> {
    /// The example of a line, or what is wrong with the line; fails where no line can be used.
    fn example(&mut self, line: &[u8]) -> Result<Result<Example, String>> {
        let parsed: Line = match serde_json::from_slice(line) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Err(reason(&error))),
        };
        let tokenizer = self.tokenizer;
        let example = match parsed {
            Line { text: Some(text), prompt: None, completion: None, messages: None } => {
                self.forms.texts += 1;
                Example::text(&text, tokenizer)
            }
            Line { text: None, prompt: Some(prompt), completion: Some(wanted), messages: None } => {
                self.forms.completions += 1;
                Example::completion(&prompt, &wanted, tokenizer)
            }
            Line { text: None, prompt: None, completion: None, messages: Some(_) } => {
                self.forms.conversations += 1;
                let conversation = match conversation(line) {
                    Ok(conversation) => conversation,
                    Err(why) => return Ok(Err(why)),
                };
                if self.template.is_none() {
                    self.template = Some(tokenizer.chat_template()?);
                }
                let template = self.template.as_ref().expect("it was made a moment ago");
                Example::conversation(&conversation, template, tokenizer)
            }
            other => return Ok(Err(wrong_fields(&other))),
        };
        Ok(example.map_err(|error| error.to_string()))
    }
}

fn conversation(line: &[u8]) -> Result<Conversation, String> {
    let conversation: Conversation =
        serde_json::from_slice(line).map_err(|error| reason(&error))?;
    if conversation.is_empty() {
        return Err("`messages` is empty".to_owned());
    }
    match (0..conversation.len()).find(|index| conversation.role(*index).is_none()) {
        Some(index) => Err(format!("message {} has no `role`", index + 1)),
        None => Ok(conversation),
    }
}

/// Why the fields of a line are none of the three forms.
fn wrong_fields(line: &Line) -> String {
    let fields = [
        ("text", line.text.is_some()),
        ("prompt", line.prompt.is_some()),
        ("completion", line.completion.is_some()),
        ("messages", line.messages.is_some()),
    ];
    let there: Vec<String> =
        fields.iter().filter(|(_, there)| *there).map(|(name, _)| format!("`{name}`")).collect();
    match (there.as_slice(), line.prompt.is_some(), line.completion.is_some()) {
        ([], ..) => "it has neither `text` nor `prompt` and `completion` nor `messages`".to_owned(),
        ([_], true, _) => "it has a `prompt` without a `completion`".to_owned(),
        ([_], _, true) => "it has a `completion` without a `prompt`".to_owned(),
        (all, ..) => format!("it has {}, which do not go together", all.join(" and ")),
    }
}

/// What the parser says, with the column alone: it counts lines from the start of this one.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
