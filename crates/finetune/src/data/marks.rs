//! Answers of long conversations, found by marks around all of them at once.
//!
//! To look for each answer means to render the conversation for each, which takes a time that grows
//! with the square of its length. Here the template writes the conversation once more with a mark
//! at the start and the end of each answer. A few answers are looked for one by one; they tell what
//! is around the marks. Others with the same around their marks begin and end alike. Whatever is
//! different in any way is left to the search.

use std::ops::Range;

use super::turns::{OTHER, Search};
use crate::hub::HubError;

/// Conversations with fewer answers are searched answer by answer.
pub(super) const FEW: usize = 16;

/// A message in the text: what the message says without whitespace around it, and that whitespace.
pub(super) struct Marked<'a> {
    pub(super) text: Range<usize>,
    before: &'a str,
    after: &'a str,
}

/// What is around answers.
#[derive(PartialEq, Eq)]
struct Around<'a> {
    /// What the template writes for the model to continue.
    header: &'a str,
    /// What ends an answer.
    end: &'a str,
}

impl Search<'_> {
    /// The places of those `answers` that marks find.
    pub(super) fn marked(&self, answers: &[usize]) -> Result<Vec<Option<Range<usize>>>, HubError> {
        let mut places = vec![None; answers.len()];
        if answers.len() < FEW {
            return Ok(places);
        }
        let contents = self.contents(answers);
        let Some(marked) = self.marks(answers, &contents)? else { return Ok(places) };
        // Those at the start and the end may be written in another way.
        for example in [1, answers.len() / 2, answers.len() - 2] {
            places[example] = Some(self.place(answers[example])?);
        }
        let header = self.header(answers[1])?;
        let example = |at: usize| self.around(&header, marked[at].as_ref()?, places[at].clone()?);
        let Some(around) = example(1) else { return Ok(vec![None; answers.len()]) };
        for other in [answers.len() / 2, answers.len() - 2] {
            if example(other).as_ref() != Some(&around) {
                return Ok(vec![None; answers.len()]);
            }
        }
        for at in 1..answers.len() - 1 {
            if places[at].is_none() {
                places[at] = marked[at].as_ref().and_then(|marked| self.like(&around, marked));
            }
        }
        Ok(places)
    }

    /// What some messages say, as far as it can be marked.
    pub(super) fn contents(&self, messages: &[usize]) -> Vec<Option<String>> {
        let content = |&index: &usize| {
            let content = self.conversation.content(index)?;
            (!content.trim().is_empty()).then_some(content)
        };
        messages.iter().map(content).collect()
    }

    /// Where the marks are, or `None` if the template does anything with them but write them.
    pub(super) fn marks<'a>(
        &self,
        messages: &[usize],
        contents: &'a [Option<String>],
    ) -> Result<Option<Vec<Option<Marked<'a>>>>, HubError> {
        if self.whole.contains(OTHER) {
            return Ok(None);
        }
        let said = messages.iter().zip(contents);
        let said = said.filter_map(|(index, content)| Some((*index, content.as_deref()?)));
        let with_marks = |(index, content): (usize, &str)| {
            let (before, text, after) = divided(content);
            (index, format!("{before}{OTHER}{text}{OTHER}{after}"))
        };
        let changed: Vec<(usize, String)> = said.map(with_marks).collect();
        let conversation = self.conversation.with_contents(&changed);
        let Ok(text) = self.template.render(&conversation, conversation.len(), false) else {
            return Ok(None);
        };
        let mut places = Vec::with_capacity(2 * changed.len());
        let mut plain = String::with_capacity(self.whole.len());
        for (number, piece) in text.split(OTHER).enumerate() {
            if number > 0 {
                places.push(plain.len());
            }
            plain.push_str(piece);
        }
        if plain != self.whole || places.len() != 2 * changed.len() {
            return Ok(None);
        }
        let mut pairs = places.chunks_exact(2);
        let marked = contents.iter().map(|content| {
            let (before, text, after) = divided(content.as_deref()?);
            let pair = pairs.next()?;
            let (start, end) = (pair[0], pair[1]);
            // Otherwise the template has changed the order or the text.
            (self.whole.get(start..end)? == text).then_some(Marked {
                text: start..end,
                before,
                after,
            })
        });
        Ok(Some(marked.collect()))
    }

    /// What the template writes for the model to continue, before message `index`.
    fn header(&self, index: usize) -> Result<String, HubError> {
        let render = |answer| self.template.render(self.conversation, index, answer);
        let (plain, asked) = (render(false)?, render(true)?);
        Ok(asked.strip_prefix(plain.as_str()).unwrap_or_default().to_owned())
    }

    /// What is around an answer whose place is known.
    fn around<'a>(
        &'a self,
        header: &'a str,
        marked: &Marked<'_>,
        place: Range<usize>,
    ) -> Option<Around<'a>> {
        let Marked { text, before, after } = marked;
        if place.start > text.start || place.end < text.end || header.is_empty() {
            return None;
        }
        let kept = &self.whole[place.start..text.start];
        let starts = self.whole[..place.start].ends_with(header);
        if !starts || !(kept.is_empty() || kept == *before) {
            return None;
        }
        let end = &self.whole[text.end..place.end];
        Some(Around { header, end: end.strip_prefix(after).unwrap_or(end) })
    }

    /// The place of an answer with the same around it. `None` if there are two.
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

/// What holds with the whitespace or without it, but not both.
fn one(whitespace: &str, place: impl Fn(&str) -> Option<usize>) -> Option<usize> {
    match (place(whitespace), place("")) {
        (Some(with), Some(without)) => (with == without).then_some(with),
        (with, without) => with.or(without),
    }
}

/// A text without whitespace around it, and the whitespace.
fn divided(text: &str) -> (&str, &str, &str) {
    let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
    (&text[..start], &text[start..end], &text[end..])
}
