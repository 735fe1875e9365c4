//! Locates the answers of a conversation in its rendered text.
//!
//! A chat template does not mark answers. An answer starts where the text of the previous messages
//! with the generation prompt ends, if the text of the whole conversation begins with that text. It
//! ends where the text of the messages up to it ends, without whitespace after the special token
//! that ends it: generation stops at that token.
//!
//! Some templates render an answer differently if messages follow it, or append text to the last
//! message. Others begin the generation prompt with a thought that earlier answers lack. These
//! templates are rendered again with a sentinel as the answer; the surrounding text marks where the
//! answer starts and ends.
//!
//! In long conversations most answers are located together (`marks.rs` and `gaps.rs`).

use std::ops::Range;

use crate::hub::HubError;
use crate::tokenizer::{ASSISTANT, ChatTemplate, Conversation, Tokenizer};

/// The content that replaces an answer: a private-use character, which texts rarely contain.
pub(super) const SENTINEL: &str = "\u{f8ff}";

/// Maximum bytes that the individual search renders: the conversation once per answer.
const RENDERED: usize = 512 << 20;

/// A part of the rendered text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) has_loss: bool,
}

/// Renders `conversation` in pieces. Assistant pieces have loss.
pub(super) fn turns(
    conversation: &Conversation,
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
) -> Result<Vec<Piece>, HubError> {
    let whole = template.render(conversation, conversation.len(), false)?;
    let assistant = |index: &usize| conversation.role(*index).as_deref() == Some(ASSISTANT);
    let answers: Vec<usize> = (0..conversation.len()).filter(assistant).collect();
    let search = Search { conversation, template, tokenizer, whole: &whole };
    let mut marked = search.marked(&answers)?;
    search.find_in_gaps(&answers, &mut marked)?;
    let rendered = marked.iter().filter(|range| range.is_none()).count() * whole.len();
    if rendered > RENDERED {
        let messages = conversation.len();
        let reason = format!(
            "the {messages} messages are too long to search for each answer; split the conversation"
        );
        return Err(HubError::Chat { reason });
    }
    let mut pieces = Vec::new();
    let mut done = 0;
    for (index, marked) in answers.into_iter().zip(marked) {
        let range = match marked {
            Some(range) => range,
            None => search.range(index)?,
        };
        if range.start < done {
            return Err(not_found("start", index));
        }
        pieces.push(Piece { text: whole[done..range.start].to_owned(), has_loss: false });
        pieces.push(Piece { text: whole[range.clone()].to_owned(), has_loss: true });
        done = range.end;
    }
    pieces.push(Piece { text: whole[done..].to_owned(), has_loss: false });
    Ok(pieces)
}

fn not_found(edge: &str, index: usize) -> HubError {
    let message = index + 1;
    HubError::Chat {
        reason: format!("the {edge} of message {message} cannot be found in the rendered text"),
    }
}

/// A search for the answers of a conversation.
pub(super) struct Search<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) template: &'a ChatTemplate,
    pub(super) tokenizer: &'a Tokenizer,
    /// The text of the whole conversation.
    pub(super) whole: &'a str,
}

impl Search<'_> {
    /// Returns the range of the answer in message `index`.
    pub(super) fn range(&self, index: usize) -> Result<Range<usize>, HubError> {
        let &Self { conversation, template, whole, .. } = self;
        let answer = Answer { conversation, index, template, whole };
        let start = answer.start()?.ok_or_else(|| not_found("start", index))?;
        let end = answer.end(start, self.tokenizer)?.filter(|end| *end >= start);
        Ok(start..end.ok_or_else(|| not_found("end", index))?)
    }
}

/// The answer in message `index`, in the text of the whole conversation.
struct Answer<'a> {
    conversation: &'a Conversation,
    index: usize,
    template: &'a ChatTemplate,
    whole: &'a str,
}

impl Answer<'_> {
    /// Renders the first `count` messages with the sentinel as the answer. Returns the text before
    /// and after it.
    fn around_sentinel(&self, count: usize) -> Result<Option<[String; 2]>, HubError> {
        let said = self.conversation.saying(self.index, SENTINEL);
        let text = self.template.render(&said, count, false)?;
        Ok(text.split_once(SENTINEL).map(|(before, after)| [before.to_owned(), after.to_owned()]))
    }

    /// Returns the start of the answer. `None` if the text before it differs in the whole text.
    fn start(&self) -> Result<Option<usize>, HubError> {
        let (whole, index) = (self.whole, self.index);
        let before = self.template.render(self.conversation, index, true)?;
        if whole.starts_with(&before) {
            return Ok(Some(before.len()));
        }
        let Some([header, _]) = self.around_sentinel(index + 1)? else { return Ok(None) };
        // The generation prompt begins with a thought that this answer lacks.
        if before.starts_with(&header) && whole.starts_with(&header) {
            return Ok(Some(header.len()));
        }
        // The answer and the generation prompt begin with different thoughts.
        let messages = self.template.render(self.conversation, index, false)?;
        let line = before[..common(&before, whole)].rfind('\n').map(|line| line + 1);
        let start = line.filter(|start| *start > messages.len());
        Ok(start.filter(|_| header == before && before.starts_with(&messages)))
    }

    /// Returns the end of the answer that starts at `start`.
    fn end(&self, start: usize, tokenizer: &Tokenizer) -> Result<Option<usize>, HubError> {
        let (whole, count) = (self.whole, self.index + 1);
        let up_to = self.template.render(self.conversation, count, false)?;
        if up_to.len() >= start && whole.starts_with(&up_to) {
            let trimmed = up_to.trim_end();
            let ended = trimmed.len() >= start && tokenizer.ends_special(trimmed);
            return Ok(Some(if ended { trimmed.len() } else { up_to.len() }));
        }
        let around = (self.around_sentinel(self.conversation.len())?, self.around_sentinel(count)?);
        let (Some([_, after]), Some([_, last])) = around else { return Ok(None) };
        let Some(said) = whole.strip_suffix(after.as_str()) else { return Ok(None) };
        // The common text after the answer, up to the first special token, ends the answer.
        let shared = &after[..common(&after, &last)];
        let mut ranges = shared.char_indices().map(|(range, one)| range + one.len_utf8());
        let token = ranges.find(|range| tokenizer.ends_special(&shared[..*range]));
        Ok(Some(said.len() + token.unwrap_or(0)))
    }
}

/// Returns the length of the common prefix in bytes, in whole characters.
fn common(left: &str, right: &str) -> usize {
    let same = left.chars().zip(right.chars()).take_while(|(left, right)| left == right);
    same.map(|(one, _)| one.len_utf8()).sum()
}
