//! Incremental decoding of tokens to text.
//!
//! A token is not always a piece of text: it may end inside a character, and some tokenizers write
//! a space only between two tokens. Each token is therefore decoded together with the tokens of the
//! last piece, and the text of that piece is removed.

use super::Tokenizer;

/// The replacement character that decoders write for an incomplete character.
const UNFINISHED: char = '\u{fffd}';

/// An incremental decoder.
#[derive(Clone, Debug)]
pub struct TokenStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The tokens of the last piece of text, and later ones without text.
    tokens: Vec<u32>,
    /// Number of tokens of the last piece.
    told: usize,
}

impl<'a> TokenStream<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, tokens: Vec::new(), told: 0 }
    }

    /// Adds the next token. Returns the text that it completes; empty for special tokens and while
    /// a character is incomplete.
    pub fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let (told, all) = self.decoded();
        if all.ends_with(UNFINISHED) || all.len() <= told.len() {
            return String::new();
        }
        let text = new_part(&told, &all);
        self.tokens.drain(..self.told);
        self.told = self.tokens.len();
        text
    }

    /// Returns the remaining text, with an incomplete character as U+FFFD.
    pub fn finish(self) -> String {
        let (told, all) = self.decoded();
        new_part(&told, &all)
    }

    /// Returns the text of the last piece, and the text of all tokens.
    fn decoded(&self) -> (String, String) {
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens);
        (decode(&self.tokens[..self.told]), decode(&self.tokens))
    }
}

impl Tokenizer {
    /// Returns an incremental decoder.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream::new(self)
    }
}

/// Returns `all` without its prefix `told`.
fn new_part(told: &str, all: &str) -> String {
    all.get(told.len()..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8]) -> (Vec<String>, String) {
        let tokenizer = Tokenizer::bytes();
        let mut stream = tokenizer.stream();
        let pieces = bytes.iter().map(|&byte| stream.push(u32::from(byte))).collect();
        (pieces, stream.finish())
    }

    #[test]
    fn a_character_is_emitted_once_complete() {
        let (found, rest) = pieces("aé→b".as_bytes());
        assert_eq!(found, ["a", "", "é", "", "", "→", "b"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn invalid_utf_8_does_not_stop_the_rest() {
        let (found, rest) = pieces(&[b'a', 0xff, b'b', 0xe2, 0x86]);
        assert_eq!(found, ["a", "", "\u{fffd}b", "", ""]);
        assert_eq!(rest, "\u{fffd}");
        assert_eq!(pieces(&[]), (vec![], String::new()));
    }
}
