//! Which part of a conversation's text the assistant says.
//!
//! A template does not tell. But what it writes of the messages before an answer, up to where the
//! model is to speak, is what the text of the whole conversation must begin with: there the answer
//! starts. It ends where the text of the messages up to it ends, without whitespace behind the
//! token that ends it, which nobody waits for. Where a template writes an answer in another way
//! once messages follow it, the answer ends with the token that ends a text.

use super::example::Piece;
use crate::hub::HubError;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

/// The text of `conversation` in pieces, of which those that the assistant says are learned.
pub(super) fn turns(
    conversation: &Conversation,
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
) -> Result<Vec<Piece>, HubError> {
    let whole = template.render(conversation, conversation.len(), false)?;
    let mut pieces = Vec::new();
    let mut done = 0;
    for index in 0..conversation.len() {
        if conversation.role(index).as_deref() != Some("assistant") {
            continue;
        }
        let before = template.render(conversation, index, true)?;
        let lost = || HubError::Chat {
            why: format!("it writes the messages before message {} in two ways", index + 1),
        };
        if before.len() < done || !whole.starts_with(&before) {
            return Err(lost());
        }
        let up_to = template.render(conversation, index + 1, false)?;
        let end = end(&whole, (&before, &up_to), tokenizer).ok_or_else(lost)?;
        pieces.push(Piece { text: whole[done..before.len()].to_owned(), learned: false });
        pieces.push(Piece { text: whole[before.len()..end].to_owned(), learned: true });
        done = end;
    }
    pieces.push(Piece { text: whole[done..].to_owned(), learned: false });
    Ok(pieces)
}

/// Where the answer ends that starts behind `before`.
fn end(whole: &str, (before, up_to): (&str, &str), tokenizer: &Tokenizer) -> Option<usize> {
    if up_to.len() >= before.len() && whole.starts_with(up_to) {
        let trimmed = up_to.trim_end();
        let ended = trimmed.len() >= before.len() && tokenizer.ends_special(trimmed);
        return Some(if ended { trimmed.len() } else { up_to.len() });
    }
    let token = tokenizer.end_text()?;
    let place = whole[before.len()..].find(token)?;
    Some(before.len() + place + token.len())
}
