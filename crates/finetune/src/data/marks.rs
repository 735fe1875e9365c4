//! Answers of long conversations, located together by sentinels.
//!
//! The individual search renders the conversation once per answer, which takes quadratic time. Here
//! the template renders the conversation once more with a sentinel at the start and the end of each
//! answer. Three answers are searched individually; they determine the header before an answer and
//! the text that ends it. Sentinels locate every other answer with the same header and end; the
//! remaining answers are searched individually.

use std::ops::Range;

use super::turns::{SENTINEL, Search};
use crate::hub::HubError;

/// In conversations with fewer answers, each answer is searched individually.
pub(super) const FEW: usize = 16;

/// A message in the rendered text: its trimmed content and the whitespace around it.
pub(super) struct Marked<'a> {
    pub(super) text: Range<usize>,
    before: &'a str,
    after: &'a str,
}

/// The text around answers.
#[derive(PartialEq, Eq)]
struct Around<'a> {
    /// The generation prompt.
    header: &'a str,
    /// The text that ends an answer.
    end: &'a str,
}

impl Search<'_> {
    /// Returns the ranges of the `answers` that sentinels locate.
    pub(super) fn marked(&self, answers: &[usize]) -> Result<Vec<Option<Range<usize>>>, HubError> {
        let mut ranges = vec![None; answers.len()];
        if answers.len() < FEW {
            return Ok(ranges);
        }
        let contents = self.contents(answers);
        let Some(marked) = self.marks(answers, &contents)? else { return Ok(ranges) };
        // Templates may render the first and the last answer differently.
        for example in [1, answers.len() / 2, answers.len() - 2] {
            ranges[example] = Some(self.range(answers[example])?);
        }
        let header = self.header(answers[1])?;
        let example = |at: usize| self.around(&header, marked[at].as_ref()?, ranges[at].clone()?);
        let Some(around) = example(1) else { return Ok(vec![None; answers.len()]) };
        for other in [answers.len() / 2, answers.len() - 2] {
            if example(other).as_ref() != Some(&around) {
                return Ok(vec![None; answers.len()]);
            }
        }
        for at in 1..answers.len() - 1 {
            if ranges[at].is_none() {
                ranges[at] = marked[at].as_ref().and_then(|marked| self.like(&around, marked));
            }
        }
        Ok(ranges)
    }

    /// Returns the contents of `messages`. `None` for a content that is blank or not text.
    pub(super) fn contents(&self, messages: &[usize]) -> Vec<Option<String>> {
        let content = |&index: &usize| {
            let content = self.conversation.content(index)?;
            (!content.trim().is_empty()).then_some(content)
        };
        messages.iter().map(content).collect()
    }

    /// Locates messages by sentinels. `None` if the sentinels change the rest of the text.
    pub(super) fn marks<'a>(
        &self,
        messages: &[usize],
        contents: &'a [Option<String>],
    ) -> Result<Option<Vec<Option<Marked<'a>>>>, HubError> {
        if self.whole.contains(SENTINEL) {
            return Ok(None);
        }
        let said = messages.iter().zip(contents);
        let said = said.filter_map(|(index, content)| Some((*index, content.as_deref()?)));
        let with_marks = |(index, content): (usize, &str)| {
            let (before, text, after) = split(content);
            (index, format!("{before}{SENTINEL}{text}{SENTINEL}{after}"))
        };
        let changed: Vec<(usize, String)> = said.map(with_marks).collect();
        let conversation = self.conversation.with_contents(&changed);
        let Ok(text) = self.template.render(&conversation, conversation.len(), false) else {
            return Ok(None);
        };
        let mut ranges = Vec::with_capacity(2 * changed.len());
        let mut plain = String::with_capacity(self.whole.len());
        for (number, piece) in text.split(SENTINEL).enumerate() {
            if number > 0 {
                ranges.push(plain.len());
            }
            plain.push_str(piece);
        }
        if plain != self.whole || ranges.len() != 2 * changed.len() {
            return Ok(None);
        }
        let mut pairs = ranges.chunks_exact(2);
        let marked = contents.iter().map(|content| {
            let (before, text, after) = split(content.as_deref()?);
            let pair = pairs.next()?;
            let (start, end) = (pair[0], pair[1]);
            // A difference means that the template changed the order or the text.
            (self.whole.get(start..end)? == text).then_some(Marked {
                text: start..end,
                before,
                after,
            })
        });
        Ok(Some(marked.collect()))
    }

    /// Returns the generation prompt before message `index`.
    fn header(&self, index: usize) -> Result<String, HubError> {
        let render = |answer| self.template.render(self.conversation, index, answer);
        let (plain, asked) = (render(false)?, render(true)?);
        Ok(asked.strip_prefix(plain.as_str()).unwrap_or_default().to_owned())
    }

    /// Returns the text around an answer in a known range.
    fn around<'a>(
        &'a self,
        header: &'a str,
        marked: &Marked<'_>,
        range: Range<usize>,
    ) -> Option<Around<'a>> {
        let Marked { text, before, after } = marked;
        if range.start > text.start || range.end < text.end || header.is_empty() {
            return None;
        }
        let kept = &self.whole[range.start..text.start];
        let starts = self.whole[..range.start].ends_with(header);
        if !starts || !(kept.is_empty() || kept == *before) {
            return None;
        }
        let end = &self.whole[text.end..range.end];
        Some(Around { header, end: end.strip_prefix(after).unwrap_or(end) })
    }

    /// Returns the range of an answer with the same text around it. `None` if it is ambiguous.
    fn like(&self, around: &Around<'_>, marked: &Marked<'_>) -> Option<Range<usize>> {
        let Marked { text, before, after } = marked;
        let (left, right) = (&self.whole[..text.start], &self.whole[text.end..]);
        let headed =
            |kept: &str| left.strip_suffix(kept)?.strip_suffix(around.header).map(str::len);
        let start = one(before, |kept| Some(headed(kept)? + around.header.len()))?;
        let ended = |kept: &str| {
            right.strip_prefix(kept)?.strip_prefix(around.end)?;
            Some(text.end + kept.len() + around.end.len())
        };
        Some(start..one(after, ended)?)
    }
}

/// Returns the range with or without the whitespace. `None` if both exist and differ.
fn one(whitespace: &str, range: impl Fn(&str) -> Option<usize>) -> Option<usize> {
    match (range(whitespace), range("")) {
        (Some(with), Some(without)) => (with == without).then_some(with),
        (with, without) => with.or(without),
    }
}

/// Splits a text into leading whitespace, trimmed text and trailing whitespace.
fn split(text: &str) -> (&str, &str, &str) {
    let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
    (&text[..start], &text[start..end], &text[end..])
}
