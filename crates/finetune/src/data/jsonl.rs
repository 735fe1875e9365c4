//! Reading examples from JSON Lines, and from Parquet files, whose rows are converted to lines.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::{LISTED, reason};
use super::forms::{self, Alpaca, ShareGptMessage};
use super::lines::{JsonlLimits, Lines};
use super::parallel::{self, LineSource, ParseLines};
use super::{DataError, Example, preferences};
use crate::digest::FileDigest;
use crate::error::Result;
use crate::json_file::require_object;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

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

impl Forms {
    fn add(&mut self, other: Self) {
        self.texts += other.texts;
        self.completions += other.completions;
        self.conversations += other.conversations;
    }
}

/// The fields that are read from a line. Other fields are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    text: Option<String>,
    prompt: Option<String>,
    completion: Option<String>,
    messages: Option<IgnoredAny>,
    /// A field of ShareGPT.
    conversations: Option<IgnoredAny>,
    /// A field of Alpaca, with `output`.
    instruction: Option<String>,
    output: Option<String>,
    /// A field of preferences.
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
    /// Returns the fields of the line that determine its form.
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
        // Converted data often keeps its original fields.
        let of_alpaca = |name: &&str| ["instruction", "output"].contains(name);
        match there.iter().all(of_alpaca) {
            true => there,
            false => there.into_iter().filter(|name| !of_alpaca(name)).collect(),
        }
    }
}

/// Reads the examples of `path`, JSON Lines or a Parquet file. Empty lines are skipped.
///
/// Threads parse chunks of the file; examples keep file order. Memory holds these chunks and all
/// tokens, within [`JsonlLimits::MAXIMUM`].
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
    let mut examples = Vec::new();
    let mut take = |example| {
        examples.push(example);
        Ok(())
    };
    let (forms, _) = examples_of(path, tokenizer, limits, &mut take, on)?;
    Ok((examples, forms))
}

/// Passes the examples of a file to `take`, in order. Also returns SHA-256 of the file.
///
/// # Errors
/// As [`read_jsonl`].
pub(super) fn examples_of(
    path: &Path,
    tokenizer: &Tokenizer,
    limits: JsonlLimits,
    take: &mut dyn FnMut(Example) -> Result<()>,
    on: Progress<'_>,
) -> Result<(Forms, FileDigest)> {
    let mut examples = 0;
    let take = &mut |example| {
        examples += 1;
        take(example)
    };
    let of = Reading { source: source(path, limits)?, path, limits, on };
    let reader = || Reader::new(tokenizer);
    let (readers, digest) = of.read(reader, &|example| example.tokens().len(), take)?;
    let mut forms = Forms::default();
    readers.iter().for_each(|reader| forms.add(reader.forms));
    if forms.conversations == examples && !readers.iter().any(|reader| reader.answers) {
        return Err(DataError::NoAssistant { path: path.to_owned(), examples }.into());
    }
    Ok((forms, digest))
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
    let mut pairs = Vec::new();
    let mut take = |pair| {
        pairs.push(pair);
        Ok(())
    };
    pairs_of(path, tokenizer, JsonlLimits::MAXIMUM, &mut take, on)?;
    Ok(pairs)
}

/// Passes the pairs of a file to `take`, in order. Returns SHA-256 of the file.
///
/// # Errors
/// As [`read_preferences`].
pub(super) fn pairs_of(
    path: &Path,
    tokenizer: &Tokenizer,
    limits: JsonlLimits,
    take: &mut dyn FnMut([Example; 2]) -> Result<()>,
    on: Progress<'_>,
) -> Result<FileDigest> {
    let of = Reading { source: source(path, limits)?, path, limits, on };
    let reader = || PairReader(Reader::new(tokenizer));
    let length = |pair: &[Example; 2]| pair.iter().map(|one| one.tokens().len()).sum();
    of.read(reader, &length, take).map(|(_, digest)| digest)
}

/// Opens a file, as Parquet if it begins with [`PARQUET`], else as JSON Lines.
fn source(path: &Path, limits: JsonlLimits) -> Result<Box<dyn LineSource + '_>, DataError> {
    let mut file = File::open(path).map_err(DataError::read(path))?;
    // A pipe cannot seek back.
    if file.metadata().is_ok_and(|found| found.is_file()) {
        let mut start = Vec::new();
        let read = file.by_ref().take(PARQUET.len() as u64).read_to_end(&mut start);
        read.and_then(|_| file.rewind()).map_err(DataError::read(path))?;
        if start == PARQUET {
            return rows(path, file, limits);
        }
    }
    Ok(Box::new(Lines::new(path, file, limits)))
}

/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

#[cfg(feature = "parquet")]
fn rows(
    path: &Path,
    file: File,
    limits: JsonlLimits,
) -> Result<Box<dyn LineSource + '_>, DataError> {
    Ok(Box::new(super::rows::Rows::new(path, file, limits)?))
}

#[cfg(not(feature = "parquet"))]
fn rows(path: &Path, _: File, _: JsonlLimits) -> Result<Box<dyn LineSource + '_>, DataError> {
    let reason = "the feature `parquet` is off in this build".to_owned();
    Err(DataError::Parquet { path: path.to_owned(), reason })
}

/// A file that is being read.
struct Reading<'a> {
    source: Box<dyn LineSource + 'a>,
    path: &'a Path,
    limits: JsonlLimits,
    on: Progress<'a>,
}

impl Reading<'_> {
    /// Passes the parsed lines to `take`. `length` counts tokens.
    fn read<P: ParseLines>(
        self,
        reader: impl Fn() -> P,
        length: &dyn Fn(&P::Line) -> usize,
        take: &mut dyn FnMut(P::Line) -> Result<()>,
    ) -> Result<(Vec<P>, FileDigest)> {
        let Self { source, path, limits, on } = self;
        let bytes = source.bytes();
        let (mut malformed, mut count, mut all, mut tokens) = (Vec::new(), 0, 0, 0);
        let parsed = parallel::parse(source, reader, &mut |chunk| {
            for (line, result) in chunk.lines {
                all += 1;
                match result {
                    Ok(example) => {
                        tokens += length(&example);
                        if tokens > limits.tokens {
                            let (path, limit, what) = (path.to_owned(), limits.tokens, "tokens");
                            return Err(DataError::TooLarge { path, line, limit, what }.into());
                        }
                        take(example)?;
                    }
                    Err(reason) => {
                        count += 1;
                        if malformed.len() < LISTED {
                            malformed.push((line, shortened(reason)));
                        }
                    }
                }
            }
            on(chunk.done.min(bytes), bytes);
            chunk.failure.map_or(Ok(()), Err)
        })?;
        let path = path.to_owned();
        match (count, all) {
            (0, 0) => Err(DataError::Empty { path }.into()),
            (0, _) => Ok(parsed),
            (_, lines) => {
                let forms = P::FORMS;
                Err(DataError::Malformed { path, lines, count, malformed, forms }.into())
            }
        }
    }
}

/// Truncates a reason, which may quote a template or a line.
fn shortened(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_CHARACTERS) {
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    /// Compiled for the first conversation.
    template: Option<ChatTemplate>,
    forms: Forms,
    /// Whether any message has the role `assistant`.
    answers: bool,
}

/// A reader of preferences.
struct PairReader<'a>(Reader<'a>);

impl ParseLines for PairReader<'_> {
    type Line = [Example; 2];

    const FORMS: &'static str = "`chosen` and `rejected`, both texts with a text as `prompt`, or \
        both lists of messages";

    fn parse(&mut self, line: &[u8]) -> Result<Result<Self::Line, String>> {
        if let Err(reason) = require_object(line) {
            return Ok(Err(reason));
        }
        let Reader { tokenizer, template, .. } = &mut self.0;
        preferences::pair(line, tokenizer, template)
    }
}

impl ParseLines for Reader<'_> {
    type Line = Example;

    const FORMS: &'static str = "`text`, with `prompt` and `completion`, with `messages`, with \
        `conversations` (ShareGPT), or with `instruction` and `output` (Alpaca)";

    /// Parses a line of any form except preferences.
    fn parse(&mut self, line: &[u8]) -> Result<Result<Example, String>> {
        self.example(line)
    }
}

impl<'a> Reader<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, template: None, forms: Forms::default(), answers: false }
    }

    fn example(&mut self, line: &[u8]) -> Result<Result<Example, String>> {
        if let Err(reason) = require_object(line) {
            return Ok(Err(reason));
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
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Encodes a line with `text`, or with `prompt` and `completion`.
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

    /// Encodes an Alpaca line as a conversation, or, without a chat template, as a prompt with its
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
