//! Encoding of a long text in overlapping pieces of bounded size.
//!
//! The crate `tokenizers` needs nearly 200 bytes of memory per byte of text. [`Encoder`] therefore
//! encodes overlapping pieces, and joins two pieces inside a run of equal tokens. A piece starts at
//! a token boundary of the previous piece, so the regular expression of the pre-tokenizer matches
//! as in the whole text.
//!
//! Pieces are joined between two words of the pre-tokenizer. Only byte-pair encoding without
//! prefixes and suffixes also joins inside a word: merges on one side of a token boundary do not
//! depend on the other side, so a boundary of both pieces is a boundary of the whole text.
//!
//! If two pieces have no such run, larger pieces are tried up to a limit. Beyond it, encoding fails
//! with [`HubError::NotDivisible`].

mod join;

use std::ops::Range;

use tokenizers::models::ModelWrapper;

use super::guard::guarded;
use super::{Tokenizer, Vocabulary};
use crate::error::Result;
use crate::hub::HubError;

/// Bytes of a piece.
const PIECE: usize = 128 << 10;
/// Maximum size of a piece, in multiples of [`PIECE`].
const GROWTH: usize = 16;
/// The smallest overlap of two pieces is this fraction of a piece.
const OVERLAP: usize = 32;
/// Equal tokens on each side of a join.
const AGREE: usize = 32;

/// Encodes a text that arrives in parts of any size.
///
/// The tokens equal the result of [`Tokenizer::encode`]. Memory is bounded, except for the tokens.
#[derive(Debug)]
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The text from the start of the current piece.
    text: Vec<u8>,
    /// Bytes of the text before `text`.
    before: usize,
    current: Option<Piece>,
    /// The position in `text` up to which `tokens` is complete.
    joined: usize,
    tokens: Vec<u32>,
    /// Bytes of a piece.
    piece: usize,
    /// Bytes of the pieces that are tried at this position.
    size: usize,
}

/// The tokens of a piece. Positions are relative to [`Encoder::text`].
#[derive(Debug)]
struct Piece {
    tokens: Vec<Token>,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    id: u32,
    start: usize,
    end: usize,
    word: u32,
}

impl Token {
    fn equals(&self, other: &Self) -> bool {
        (self.id, self.start, self.end) == (other.id, other.start, other.end)
    }
}

impl<'a> Encoder<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self::in_pieces(tokenizer, PIECE)
    }

    fn in_pieces(tokenizer: &'a Tokenizer, piece: usize) -> Self {
        let (text, tokens) = (Vec::new(), Vec::new());
        Self { tokenizer, text, before: 0, current: None, joined: 0, tokens, piece, size: piece }
    }

    /// Takes the next part of the text.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode`].
    pub fn push(&mut self, part: &[u8]) -> Result<(), HubError> {
        if self.tokenizer.is_bytes() {
            self.tokens.extend(part.iter().copied().map(u32::from));
            return Ok(());
        }
        // Small parts bound the buffered text.
        for part in part.chunks(self.piece) {
            self.text.extend_from_slice(part);
            while self.text.len() >= self.end() + 2 * self.size {
                self.advance(false)?;
            }
        }
        Ok(())
    }

    /// Number of complete tokens.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Removes and returns the complete tokens.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.tokens)
    }

    /// Returns all remaining tokens of the text.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode`].
    pub fn finish(mut self) -> Result<Vec<u32>, HubError> {
        if self.current.is_none() && self.before == 0 && self.joined == 0 {
            let text = self.checked(0..self.text.len(), true)?;
            self.tokens.extend(self.tokenizer.encode_at_once(text)?);
            return Ok(self.tokens);
        }
        while self.end() < self.text.len() {
            self.advance(true)?;
        }
        if let Some(piece) = self.current.take() {
            let from = piece.first_from(self.joined);
            self.tokens.extend(piece.tokens[from..].iter().map(|token| token.id));
        }
        Ok(self.tokens)
    }

    /// The end of the current piece.
    fn end(&self) -> usize {
        self.current.as_ref().map_or(0, |piece| piece.end)
    }

    /// Joins the next piece to the current one, or doubles the size of pieces. With `last`, the
    /// next piece may reach the end of the text.
    fn advance(&mut self, last: bool) -> Result<(), HubError> {
        let current = match self.current.take() {
            Some(piece) => piece,
            None => self.encode(0..self.size, last)?,
        };
        if last && current.end == self.text.len() {
            self.current = Some(current);
            return Ok(());
        }
        let mut overlap = self.size / OVERLAP;
        while overlap < self.size {
            if let Some(start) = self.start(&current, current.end.saturating_sub(overlap)) {
                let next = self.encode(start..current.end + self.size, last)?;
                if let Some(position) = self.position(&current, &next) {
                    self.join(&current, next, start, position);
                    self.size = self.piece;
                    return Ok(());
                }
            }
            overlap *= 4;
        }
        let limit = GROWTH * self.piece;
        if self.size >= limit {
            let position = self.before + self.joined;
            return Err(HubError::NotDivisible { position, limit });
        }
        self.size *= 2;
        Ok(())
    }

    /// Appends the tokens of `left` up to the boundary. `right`, which begins at `start`, becomes
    /// the current piece.
    fn join(&mut self, left: &Piece, mut right: Piece, start: usize, position: [usize; 2]) {
        let from = left.first_from(self.joined);
        self.tokens.extend(left.tokens[from..position[0]].iter().map(|token| token.id));
        self.joined = right.tokens[position[1]].start - start;
        self.text.drain(..start);
        self.before += start;
        right.end -= start;
        for token in &mut right.tokens {
            token.start -= start;
            token.end -= start;
        }
        self.current = Some(right);
    }

    /// Encodes a part of the text, truncated to whole characters.
    fn encode(&self, range: Range<usize>, last: bool) -> Result<Piece, HubError> {
        let (start, end) = (range.start, range.end.min(self.text.len()));
        let last = last && end == self.text.len();
        let text = self.checked(start..end, last)?;
        let Vocabulary::Subwords(inner) = &self.tokenizer.vocabulary else {
            return Ok(Piece { tokens: Vec::new(), end });
        };
        let encoding = guarded(|| inner.encode(text, false)).map_err(HubError::encode)?;
        let positions = encoding.get_offsets().iter().zip(encoding.get_word_ids());
        let token = |(&id, (position, word)): (&u32, (&(usize, usize), &Option<u32>))| Token {
            id,
            start: start + position.0,
            end: start + position.1,
            word: word.unwrap_or(u32::MAX),
        };
        let tokens = encoding.get_ids().iter().zip(positions).map(token).collect();
        Ok(Piece { tokens, end: start + text.len() })
    }

    /// Returns a part of the text as UTF-8. Only the last part must end with a whole character.
    fn checked(&self, range: Range<usize>, last: bool) -> Result<&str, HubError> {
        let bytes = &self.text[range.clone()];
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let (valid, _) = bytes.split_at(error.valid_up_to());
        match std::str::from_utf8(valid) {
            Ok(text) if !last && error.error_len().is_none() => Ok(text),
            _ => {
                let position = self.before + range.start + error.valid_up_to();
                Err(HubError::encode(format!(
                    "byte {position}, counted from 0, is not UTF-8; convert the text"
                )))
            }
        }
    }
}

impl Piece {
    /// Returns the index of the first token that starts at or after `position`.
    fn first_from(&self, position: usize) -> usize {
        self.tokens.partition_point(|token| token.start < position)
    }
}

impl Tokenizer {
    /// Encodes `text` without adding special tokens. Text that equals a special token becomes that
    /// token.
    ///
    /// # Errors
    /// [`HubError::Encode`] if the text is not UTF-8 (bytes as tokens need not be), or has a part
    /// without a token. [`HubError::NotDivisible`] for a long text that cannot be encoded in
    /// pieces.
    pub fn encode(&self, text: impl AsRef<[u8]>) -> Result<Vec<u32>> {
        let mut encoder = self.encoder();
        encoder.push(text.as_ref())?;
        Ok(encoder.finish()?)
    }

    /// Returns an encoder for a text that arrives in parts.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder::new(self)
    }

    /// Whether pieces can be joined inside a word: byte-pair encoding without prefix and suffix.
    fn joins_inside_words(&self) -> bool {
        let Vocabulary::Subwords(inner) = &self.vocabulary else { return false };
        match inner.get_model() {
            ModelWrapper::BPE(model) => {
                model.continuing_subword_prefix.is_none() && model.end_of_word_suffix.is_none()
            }
            _ => false,
        }
    }

    /// Whether any added token has `lstrip`, and so takes all whitespace before it.
    fn takes_whitespace(&self) -> bool {
        let Vocabulary::Subwords(inner) = &self.vocabulary else { return false };
        inner.get_added_tokens_decoder().values().any(|token| token.lstrip)
    }
}

#[cfg(test)]
mod tests;
