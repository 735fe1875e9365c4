//! Text from tokens that come one after the other.
//!
//! A token is not always a piece of text: it may end inside of a character, and some tokenizers
//! write a space only between two tokens. Each token is therefore decoded together with the last
//! ones whose text is known, and what they have in common is taken away.

use super::Tokenizer;

/// What decoders put in place of a character of which only a part is there.
const UNFINISHED: char = '\u{fffd}';

/// Tokens on their way to text.
#[derive(Clone, Debug)]
pub struct TokenStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The tokens of the last piece of text, and those behind it that are no text yet.
    tokens: Vec<u32>,
    /// Tokens of the last piece.
    told: usize,
}

impl<'a> TokenStream<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, tokens: Vec::new(), told: 0 }
    }

    /// Takes the next token. The text that it completes; empty while a character is unfinished, and
    /// for special tokens.
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

    /// The text of what is left, with an unfinished character as U+FFFD.
    pub fn finish(self) -> String {
        let (told, all) = self.decoded();
        new_part(&told, &all)
    }

    /// The text of the last piece, and the text of that with the tokens behind it.
    fn decoded(&self) -> (String, String) {
        let decode = |tokens: &[u32]| self.tokenizer.decode(tokens);
        (decode(&self.tokens[..self.told]), decode(&self.tokens))
    }
}

impl Tokenizer {
    /// The text of tokens that come one after the other.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream::new(self)
    }
}

/// What `all` has behind `told`, with which it begins.
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
    fn a_character_is_told_when_it_is_whole() {
        let (found, rest) = pieces("aé→b".as_bytes());
        assert_eq!(found, ["a", "", "é", "", "", "→", "b"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn what_is_no_character_does_not_stop_the_rest() {
        let (found, rest) = pieces(&[b'a', 0xff, b'b', 0xe2, 0x86]);
        assert_eq!(found, ["a", "", "\u{fffd}b", "", ""]);
        assert_eq!(rest, "\u{fffd}");
        assert_eq!(pieces(&[]), (vec![], String::new()));
    }
}
