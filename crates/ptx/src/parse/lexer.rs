//! Text to tokens.

use super::{ParseError, Result};

/// A position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or an opcode, such as `add`, `%r1`, `%tid.x` or `$L__BB0_1`.
    Name(&'a str),
    /// A word after a dot, without the dot: a directive, a modifier or a type.
    Dotted(&'a str),
    /// A number, as it is written.
    Number(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    /// Any other character.
    Symbol(char),
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// The token, for a message.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Name(text) | Self::Number(text) => format!("`{text}`"),
            Self::Dotted(text) => format!("`.{text}`"),
            Self::Text(text) => format!("\"{text}\""),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

/// Reads tokens.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    position: Position,
}

fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%')
}

fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$')
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, position: Position { line: 1, column: 1 } }
    }

    /// All tokens with their positions, [`Token::End`] last.
    pub(super) fn tokens(mut self) -> Result<Vec<(Token<'a>, Position)>> {
        let mut tokens = Vec::new();
        loop {
            self.skip_blank()?;
            let position = self.position;
            let token = self.token()?;
            tokens.push((token, position));
            if token == Token::End {
                return Ok(tokens);
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if starts_name(first) {
            return Ok(Token::Name(self.name()));
        }
        if first.is_ascii_digit() {
            return Ok(Token::Number(self.number()));
        }
        match first {
            '.' => {
                self.take(1);
                Ok(Token::Dotted(self.dotted()))
            }
            '"' => self.text(),
            _ => {
                self.take(first.len_utf8());
                Ok(Token::Symbol(first))
            }
        }
    }

    /// A word after a dot; some are two words with `::` between them, as in `.shared::cta`.
    fn dotted(&mut self) -> &'a str {
        let word = |text: &str| text.find(|c| !continues_name(c)).unwrap_or(text.len());
        let mut length = word(self.rest);
        while let Some(rest) = self.rest[length..].strip_prefix("::") {
            length += 2 + word(rest);
        }
        self.take(length)
    }

    /// A name, which may contain a dot in a special register.
    fn name(&mut self) -> &'a str {
        let body =
            |text: &str| text[1..].find(|c| !continues_name(c)).map_or(text.len(), |n| n + 1);
        let length = body(self.rest);
        let (name, after) = self.rest.split_at(length);
        let component = name.starts_with('%')
            && [".x", ".y", ".z"]
                .iter()
                .any(|&part| after.starts_with(part) && !after[2..].starts_with(continues_name));
        self.take(if component { length + 2 } else { length })
    }

    fn number(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let hexadecimal = matches!(bytes, [b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D', ..]);
        let mut length = 1;
        while let Some(&byte) = bytes.get(length) {
            // The sign of an exponent, as in 1.5e-3.
            let sign = !hexadecimal
                && matches!(byte, b'+' | b'-')
                && matches!(bytes[length - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || sign) {
                break;
            }
            length += 1;
        }
        self.take(length)
    }

    fn text(&mut self) -> Result<Token<'a>> {
        let start = self.position;
        self.take(1);
        let Some(length) = self.rest.find('"') else {
            return Err(ParseError::new(start, "an unterminated string", "`\"`"));
        };
        let text = self.take(length);
        self.take(1);
        Ok(Token::Text(text))
    }

    fn skip_blank(&mut self) -> Result<()> {
        loop {
            let blank = self.rest.find(|c: char| !c.is_whitespace()).unwrap_or(self.rest.len());
            self.take(blank);
            if self.rest.starts_with("//") {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(length);
            } else if self.rest.starts_with("/*") {
                let Some(length) = self.rest.find("*/") else {
                    return Err(ParseError::new(self.position, "an unterminated comment", "`*/`"));
                };
                self.take(length + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// Takes `length` bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        for c in taken.chars() {
            match c {
                '\n' => self.position = Position { line: self.position.line + 1, column: 1 },
                _ => self.position.column += 1,
            }
        }
        self.rest = rest;
        taken
    }
}

/// An integer literal: decimal, `0x`, `0b` or octal, with an optional `U`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_the_component_of_special_registers_only() {
        let tokens = Lexer::new("mov.u32 %r1, %tid.x; // x\n$L__1:").tokens().unwrap();
        let tokens: Vec<Token<'_>> = tokens.into_iter().map(|(token, _)| token).collect();
        let expected = [
            Token::Name("mov"),
            Token::Dotted("u32"),
            Token::Name("%r1"),
            Token::Symbol(','),
            Token::Name("%tid.x"),
            Token::Symbol(';'),
            Token::Name("$L__1"),
            Token::Symbol(':'),
            Token::End,
        ];
        assert_eq!(tokens, expected);
    }

    #[test]
    fn integers_have_four_notations() {
        assert_eq!(integer("42"), Some(42));
        assert_eq!(integer("0x2aU"), Some(42));
        assert_eq!(integer("0b101010"), Some(42));
        assert_eq!(integer("052"), Some(42));
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("4x"), None);
    }

    #[test]
    fn an_open_comment_and_an_open_string_are_reported_where_they_start() {
        let error = Lexer::new("a\n /* b").tokens().unwrap_err();
        assert_eq!((error.line, error.column), (2, 2));
        let error = Lexer::new(".file \"a").tokens().unwrap_err();
        assert_eq!((error.line, error.column), (1, 7));
    }
}
