//! Reading examples from JSON Lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::{LISTED, reason};
use super::forms::{self, Alpaca, ShareGptMessage};
use super::{DataError, Example, preferences};
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

/// Limits of a file of examples. They bound the memory that reading takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonlLimits {
    /// Maximum bytes of a line.
    pub line: usize,
    /// Maximum lines. Each takes about 100 bytes of memory besides its tokens.
    pub lines: usize,
    /// Maximum tokens of all examples. Each takes 5 bytes of memory.
    pub tokens: usize,
}

impl JsonlLimits {
    /// Limits of [`read_jsonl`].
    pub const MAXIMUM: Self = Self { line: 64 << 20, lines: 1 << 25, tokens: 1 << 30 };
}

/// Maximum length of a listed reason in characters.
const REASON_CHARACTERS: usize = 500;

/// Called with the bytes read so far and the size of the file.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Number of lines of each form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// Lines with `text`.
    pub texts: usize,
    /// Lines with `prompt` and `completion`.
    pub completions: usize,
    /// Lines with `messages`, and lines of ShareGPT and Alpaca.
    pub conversations: usize,
}

/// The fields of a line that are read. Others are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    text: Option<String>,
    prompt: Option<String>,
    completion: Option<String>,
    messages: Option<IgnoredAny>,
    /// Of ShareGPT.
    conversations: Option<IgnoredAny>,
    /// Of Alpaca, with `output`.
    instruction: Option<String>,
    output: Option<String>,
    /// Of preferences.
    chosen: Option<IgnoredAny>,
    rejected: Option<IgnoredAny>,
}

/// The fields of a line of ShareGPT.
#[derive(Debug, Deserialize)]
struct ShareGpt {
    conversations: Vec<ShareGptMessage>,
    system: Option<String>,
    tools: Option<serde_json::Value>,
}

/// Further fields of a line of Alpaca.
#[derive(Debug, Deserialize)]
struct AlpacaLine {
    input: Option<String>,
    system: Option<String>,
    history: Option<Vec<[String; 2]>>,
}

impl Line {
    /// The names of the forms that the line has.
    fn forms(&self) -> Vec<&'static str> {
        let fields = [
            ("text", self.text.is_some()),
            ("prompt", self.prompt.is_some()),
            ("completion", self.completion.is_some()),
            ("messages", self.messages.is_some()),
            ("conversations", self.conversations.is_some()),
            ("instruction", self.instruction.is_some()),
            ("output", self.output.is_some()),
        ];
        let there = fields.iter().filter(|(_, there)| *there).map(|(name, _)| *name);
        let there: Vec<_> = there.collect();
        // Data in other forms often keeps the fields from which it was made.
        let of_alpaca = |name: &&str| ["instruction", "output"].contains(name);
        match there.iter().all(of_alpaca) {
            true => there,
            false => there.into_iter().filter(|name| !of_alpaca(name)).collect(),
        }
    }
}

/// Reads the examples of `path`. Empty lines are skipped.
///
/// Memory holds one line at a time and the tokens of all, within [`JsonlLimits::MAXIMUM`].
///
/// # Errors
/// [`DataError::Read`], [`DataError::Empty`], [`DataError::Array`], [`DataError::LongLine`],
/// [`DataError::TooLarge`], [`DataError::NoAssistant`], or [`DataError::Malformed`] with the lines
/// that cannot be used and the reasons.
/// [`NoChatTemplate`](crate::hub::HubError::NoChatTemplate) if conversations lack a template.
pub fn read_jsonl(
    path: &Path,
    tokenizer: &Tokenizer,
    on: Progress<'_>,
) -> Result<(Vec<Example>, Forms)> {
    read_within(JsonlLimits::MAXIMUM, path, tokenizer, on)
}

fn read_within(
    limits: JsonlLimits,
    path: &Path,
    tokenizer: &Tokenizer,
    on: Progress<'_>,
) -> Result<(Vec<Example>, Forms)> {
    let parse = |reader: &mut Reader<'_>, line: &[u8]| reader.example(line);
    let length = |example: &Example| example.tokens().len();
    let (examples, reader) = read_lines(limits, (path, tokenizer), (&parse, &length), on)?;
    if reader.forms.conversations == examples.len() && !reader.answers {
        return Err(DataError::NoAssistant { examples: examples.len() }.into());
    }
    Ok((examples, reader.forms))
}

/// Reads preferences: lines with `prompt`, `chosen` and `rejected`, as texts or as messages.
/// Returns the chosen and the rejected example of each.
///
/// # Errors
/// As [`read_jsonl`].
pub fn read_preferences(
    path: &Path,
    tokenizer: &Tokenizer,
    on: Progress<'_>,
) -> Result<Vec<[Example; 2]>> {
    let parse = |reader: &mut Reader<'_>, line: &[u8]| {
        let Reader { tokenizer, template, .. } = reader;
        preferences::pair(line, (tokenizer, template))
    };
    let length = |pair: &[Example; 2]| pair.iter().map(|one| one.tokens().len()).sum();
    let (limits, of) = (JsonlLimits::MAXIMUM, (path, tokenizer));
    read_lines(limits, of, (&parse, &length), on).map(|(pairs, _)| pairs)
}

/// Parses a line. The inner error is the reason why this line cannot be used; the outer error
/// concerns all lines.
type Parse<'a, T> = &'a dyn Fn(&mut Reader<'_>, &[u8]) -> Result<Result<T, String>>;
/// Counts tokens.
type Length<'a, T> = &'a dyn Fn(&T) -> usize;

/// Reads what `parse` makes of each line, of which `length` counts the tokens.
fn read_lines<'a, T>(
    limits: JsonlLimits,
    (path, tokenizer): (&Path, &'a Tokenizer),
    (parse, length): (Parse<'_, T>, Length<'_, T>),
    on: Progress<'_>,
) -> Result<(Vec<T>, Reader<'a>)> {
    let file = File::open(path).map_err(DataError::read(path))?;
    let bytes = file.metadata().map_or(0, |file| file.len()) as usize;
    let mut lines = Lines { reader: BufReader::new(file), path, limits, number: 0, done: 0 };
    let mut reader = Reader { tokenizer, template: None, forms: Forms::default(), answers: false };
    let (mut examples, mut malformed, mut count) = (Vec::new(), Vec::new(), 0);
    let (mut line, mut tokens) = (Vec::new(), 0);
    while lines.next(&mut line)? {
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match parse(&mut reader, text)? {
            Ok(example) => {
                tokens += length(&example);
                lines.require("tokens", tokens, limits.tokens)?;
                examples.push(example);
            }
            Err(_) if examples.is_empty() && count == 0 && lines.are_an_array(text)? => {
                return Err(DataError::Array { path: path.to_owned() }.into());
            }
            Err(why) => {
                count += 1;
                if malformed.len() < LISTED {
                    malformed.push((lines.number, shortened(why)));
                }
            }
        }
        on(lines.done.min(bytes), bytes);
    }
    let (path, lines) = (path.to_owned(), examples.len() + count);
    if count > 0 {
        return Err(DataError::Malformed { path, lines, count, malformed }.into());
    }
    if examples.is_empty() {
        return Err(DataError::Empty { path }.into());
    }
    Ok((examples, reader))
}

/// Reads a file line by line.
struct Lines<'a> {
    reader: BufReader<File>,
    path: &'a Path,
    limits: JsonlLimits,
    /// The number of the current line, counted from 1.
    number: usize,
    /// Bytes read so far.
    done: usize,
}

impl Lines<'_> {
    /// Reads the next line without a byte order mark. Returns false after the last.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, DataError> {
        line.clear();
        let limit = self.limits.line;
        let read = self.reader.by_ref().take(limit as u64 + 1).read_until(b'\n', line);
        self.done += read.map_err(DataError::read(self.path))?;
        self.number += 1;
        if line.len() > limit {
            let (path, number) = (self.path.to_owned(), self.number);
            return Err(match line.trim_ascii_start().starts_with(b"[") {
                true if number == 1 => DataError::Array { path },
                _ => DataError::LongLine { path, line: number, limit },
            });
        }
        let more = !line.is_empty();
        if more {
            self.require("lines", self.number, self.limits.lines)?;
        }
        if self.number == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        Ok(more)
    }

    /// Requires at most `limit` of `what` up to the current line.
    fn require(&self, what: &'static str, count: usize, limit: usize) -> Result<(), DataError> {
        let (path, line) = (self.path.to_owned(), self.number);
        if count > limit {
            return Err(DataError::TooLarge { path, line, limit, what });
        }
        Ok(())
    }

    /// Returns whether the file is one array: `first` begins an array that continues on other
    /// lines, or is a whole array without other lines.
    fn are_an_array(&mut self, first: &[u8]) -> Result<bool, DataError> {
        let ended = self.reader.fill_buf().map_err(DataError::read(self.path))?.is_empty();
        let whole = serde_json::from_slice::<IgnoredAny>(first).is_ok();
        Ok(first.starts_with(b"[") && whole == ended)
    }
}

/// Truncates a reason, which may quote a template or a line.
fn shortened(mut why: String) -> String {
    if let Some((end, _)) = why.char_indices().nth(REASON_CHARACTERS) {
        why.truncate(end);
        why.push('…');
    }
    why
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    /// Compiled for the first conversation.
    template: Option<ChatTemplate>,
    forms: Forms,
    /// Whether any message has the role `assistant`.
    answers: bool,
}

impl Reader<'_> {
    /// Parses a line of any form except preferences; see [`Parse`].
    fn example(&mut self, line: &[u8]) -> Result<Result<Example, String>> {
        if !line.starts_with(b"{") {
            return Ok(Err("it is not an object".to_owned()));
        }
        let parsed: Line = match serde_json::from_slice(line) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Err(reason(&error))),
        };
        let conversation = match parsed.forms().as_slice() {
            ["messages"] => conversation(line),
            ["conversations"] => share_gpt_line(line),
            ["instruction", "output"] => return self.alpaca(line, parsed),
            _ => return self.plain(parsed),
        };
        match conversation {
            Ok(conversation) => self.conversation(&conversation),
            Err(why) => Ok(Err(why)),
        }
    }

    /// Encodes a line of text, or of a prompt and its completion.
    fn plain(&mut self, line: Line) -> Result<Result<Example, String>> {
        let example = match (line.forms().as_slice(), &line) {
            (["text"], Line { text: Some(text), .. }) => {
                self.forms.texts += 1;
                Example::text(text, self.tokenizer)
            }
            (
                ["prompt", "completion"],
                Line { prompt: Some(prompt), completion: Some(wanted), .. },
            ) => {
                self.forms.completions += 1;
                Example::completion(prompt, wanted, self.tokenizer)
            }
            _ => return Ok(Err(wrong_fields(&line))),
        };
        Ok(example.map_err(|error| error.to_string()))
    }

    /// Encodes a line of Alpaca: as a conversation, or without a chat template as a prompt with its
    /// completion.
    fn alpaca(&mut self, text: &[u8], line: Line) -> Result<Result<Example, String>> {
        let further: AlpacaLine = match serde_json::from_slice(text) {
            Ok(further) => further,
            Err(error) => return Ok(Err(reason(&error))),
        };
        let AlpacaLine { input, system, history } = further;
        let [instruction, output] = [line.instruction, line.output].map(Option::unwrap_or_default);
        let history = history.unwrap_or_default();
        let alpaca = Alpaca { instruction, input, output, system, history };
        if self.tokenizer.has_chat_template() {
            return self.conversation(&alpaca.conversation());
        }
        self.forms.completions += 1;
        let [prompt, completion] = alpaca.completion();
        let example = Example::completion(&prompt, &completion, self.tokenizer);
        Ok(example.map_err(|error| error.to_string()))
    }

    fn conversation(&mut self, conversation: &Conversation) -> Result<Result<Example, String>> {
        self.forms.conversations += 1;
        self.answers |= conversation.has_answer();
        if self.template.is_none() {
            self.template = Some(self.tokenizer.chat_template()?);
        }
        let template = self.template.as_ref().expect("it is set above");
        let example = Example::conversation(conversation, template, self.tokenizer);
        Ok(example.map_err(|error| error.to_string()))
    }
}

fn share_gpt_line(line: &[u8]) -> Result<Conversation, String> {
    let ShareGpt { conversations, system, tools } =
        serde_json::from_slice(line).map_err(|error| reason(&error))?;
    forms::share_gpt(conversations, system.as_deref(), tools)
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

/// Returns why the fields of a line match none of the forms.
fn wrong_fields(line: &Line) -> String {
    if line.chosen.is_some() && line.rejected.is_some() {
        return "it has `chosen` and `rejected`, which only preference training reads".to_owned();
    }
    match line.forms().as_slice() {
        [] => "it has none of `text`, `prompt` and `completion`, `messages`, `conversations`, \
               `instruction` and `output`"
            .to_owned(),
        ["prompt"] => "it has a `prompt` without a `completion`".to_owned(),
        ["completion"] => "it has a `completion` without a `prompt`".to_owned(),
        ["instruction"] => "it has an `instruction` without an `output`".to_owned(),
        ["output"] => "it has an `output` without an `instruction`".to_owned(),
        all => {
            let all: Vec<String> = all.iter().map(|name| format!("`{name}`")).collect();
            format!("it has {}, which cannot be combined", all.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn more_lines_or_tokens_than_the_limit_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, "{\"text\": \"abcd\"}\n\n{\"text\": \"efgh\"}\n").unwrap();
        let read = |lines, tokens| {
            let limits = JsonlLimits { lines, tokens, ..JsonlLimits::MAXIMUM };
            read_within(limits, &path, &Tokenizer::bytes(), &mut |_, _| ())
        };
        assert_eq!(read(3, 8).unwrap().0.len(), 2);
        for (lines, tokens, exceeded) in [(2, 8, "lines"), (3, 7, "tokens")] {
            let error = read(lines, tokens).unwrap_err();
            let Error::Data(DataError::TooLarge { line: 3, what, .. }) = error else {
                panic!("{error}");
            };
            assert_eq!(what, exceeded);
        }
    }
}
