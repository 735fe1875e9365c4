//! Which part of a conversation's text the assistant says.
//!
//! A template does not tell. But what it writes of the messages before an answer, up to where the
//! model is to speak, is what the text of the whole conversation must begin with: there the answer
//! starts. It ends where the text of the messages up to it ends, without whitespace behind the
//! token that ends it, which nobody waits for.
//!
//! Not all templates are so simple. Some write an answer in another way once messages follow it, or
//! something behind the last message, and some have the model begin with a thought that earlier
//! answers are without, or that differs from theirs. They are asked what they write if the answer
//! is another one: what stands around that one stands around every answer.
//!
//! In long conversations most answers are found together (`marks.rs` and `gaps.rs`).

use std::ops::Range;

use crate::hub::HubError;
use crate::tokenizer::{ASSISTANT, ChatTemplate, Conversation, Tokenizer};

/// What is said in place of an answer: a character that no text has a reason to contain.
pub(super) const OTHER: &str = "\u{f8ff}";

/// The most bytes of text in which answers are looked for one by one: the text of the conversation
/// for each of them.
const RENDERED: usize = 512 << 20;

/// A part of an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) learned: bool,
}

/// The text of `conversation` in pieces, of which those that the assistant says are learned.
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
    let rendered = marked.iter().filter(|place| place.is_none()).count() * whole.len();
    if rendered > RENDERED {
        let messages = conversation.len();
        let why = format!(
            "the {messages} messages are too long to look for each answer; divide the conversation"
        );
        return Err(HubError::Chat { why });
    }
    let mut pieces = Vec::new();
    let mut done = 0;
    for (index, marked) in answers.into_iter().zip(marked) {
        let place = match marked {
            Some(place) => place,
            None => search.place(index)?,
        };
        if place.start < done {
            return Err(in_two_ways(index));
        }
        pieces.push(Piece { text: whole[done..place.start].to_owned(), learned: false });
        pieces.push(Piece { text: whole[place.clone()].to_owned(), learned: true });
        done = place.end;
    }
    pieces.push(Piece { text: whole[done..].to_owned(), learned: false });
    Ok(pieces)
}

fn in_two_ways(index: usize) -> HubError {
    HubError::Chat {
        why: format!("it writes the messages before message {} in two ways", index + 1),
    }
}

/// A conversation in which answers are looked for.
pub(super) struct Search<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) template: &'a ChatTemplate,
    pub(super) tokenizer: &'a Tokenizer,
    /// The text of the whole conversation.
    pub(super) whole: &'a str,
}

impl Search<'_> {
    /// The place of the answer that is message `index`.
    pub(super) fn place(&self, index: usize) -> Result<Range<usize>, HubError> {
        let &Self { conversation, template, whole, .. } = self;
        let answer = Answer { conversation, index, template, whole };
        let start = answer.start()?.ok_or_else(|| in_two_ways(index))?;
        let end = answer.end(start, self.tokenizer)?.filter(|end| *end >= start);
        let end = end.ok_or_else(|| HubError::Chat {
            why: format!("where message {} ends in what it writes cannot be found", index + 1),
        })?;
        Ok(start..end)
    }
}

/// What the assistant says in message `index`, in the text of the whole conversation.
struct Answer<'a> {
    conversation: &'a Conversation,
    index: usize,
    template: &'a ChatTemplate,
    whole: &'a str,
}

impl Answer<'_> {
    /// What stands before and behind another answer in the text of the first `count` messages.
    fn around_other(&self, count: usize) -> Result<Option<[String; 2]>, HubError> {
        let said = self.conversation.saying(self.index, OTHER);
        let text = self.template.render(&said, count, false)?;
        Ok(text.split_once(OTHER).map(|(before, behind)| [before.to_owned(), behind.to_owned()]))
    }

    /// Where the answer starts, if the whole text begins with what comes before it.
    fn start(&self) -> Result<Option<usize>, HubError> {
        let (whole, index) = (self.whole, self.index);
        let before = self.template.render(self.conversation, index, true)?;
        if whole.starts_with(&before) {
            return Ok(Some(before.len()));
        }
        let Some([header, _]) = self.around_other(index + 1)? else { return Ok(None) };
        // The model is to begin with a thought, which this answer is without.
        if before.starts_with(&header) && whole.starts_with(&header) {
            return Ok(Some(header.len()));
        }
        // The answer begins with a thought of its own, where the model is given another one.
        let messages = self.template.render(self.conversation, index, false)?;
        let line = before[..common(&before, whole)].rfind('\n').map(|line| line + 1);
        let start = line.filter(|start| *start > messages.len());
        Ok(start.filter(|_| header == before && before.starts_with(&messages)))
    }

    /// Where the answer ends that starts at `start`.
    fn end(&self, start: usize, tokenizer: &Tokenizer) -> Result<Option<usize>, HubError> {
        let (whole, count) = (self.whole, self.index + 1);
        let up_to = self.template.render(self.conversation, count, false)?;
        if up_to.len() >= start && whole.starts_with(&up_to) {
            let trimmed = up_to.trim_end();
            let ended = trimmed.len() >= start && tokenizer.ends_special(trimmed);
            return Ok(Some(if ended { trimmed.len() } else { up_to.len() }));
        }
        let around = (self.around_other(self.conversation.len())?, self.around_other(count)?);
        let (Some([_, behind]), Some([_, last])) = around else { return Ok(None) };
        let Some(said) = whole.strip_suffix(behind.as_str()) else { return Ok(None) };
        // What is behind an answer in either case ends it, up to the first token that may.
        let shared = &behind[..common(&behind, &last)];
        let mut places = shared.char_indices().map(|(place, one)| place + one.len_utf8());
        let token = places.find(|place| tokenizer.ends_special(&shared[..*place]));
        Ok(Some(said.len() + token.unwrap_or(0)))
    }
}

/// Bytes of whole characters that both texts begin with.
fn common(left: &str, right: &str) -> usize {
    let same = left.chars().zip(right.chars()).take_while(|(left, right)| left == right);
    same.map(|(one, _)| one.len_utf8()).sum()
}
