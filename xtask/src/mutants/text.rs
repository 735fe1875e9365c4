//! PTX as a list of tokens that prints back to the same text.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blanks and comments.
    Blank,
    /// A word after a dot, with the dot.
    Dotted,
    /// A register, a label, an opcode or any other name.
    Name,
    /// A number.
    Number,
    /// Any other character.
    Symbol,
}

/// A token and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$')
}

/// The length of the words from the start of `text`; words after `::` and components of special
/// registers belong to them.
fn word_length(text: &str) -> usize {
    let mut length = text.find(|c| !is_word(c)).unwrap_or(text.len());
    while let Some(rest) = text[length..].strip_prefix("::") {
        length += 2 + rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    }
    length
}

fn blank_length(text: &str) -> usize {
    let blank = text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len());
    if blank == 0 && text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    blank
}

fn next(text: &str) -> Token {
    let first = text.chars().next().unwrap_or(' ');
    let blank = blank_length(text);
    let (kind, length) = match first {
        _ if blank > 0 => (Kind::Blank, blank),
        '.' => (Kind::Dotted, 1 + word_length(&text[1..])),
        '%' | '_' | '$' => {
            let name = 1 + word_length(&text[1..]);
            let component = [".x", ".y", ".z"].iter().any(|part| text[name..].starts_with(part));
            (Kind::Name, if first == '%' && component { name + 2 } else { name })
        }
        _ if first.is_ascii_alphabetic() => (Kind::Name, word_length(text)),
        _ if first.is_ascii_digit() => {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            (Kind::Number, end.unwrap_or(text.len()))
        }
        _ => (Kind::Symbol, first.len_utf8()),
    };
    Token::new(kind, &text[..length])
}

/// The tokens of `text`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let (mut list, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let token = next(rest);
        rest = &rest[token.text.len()..];
        list.push(token);
    }
    list
}

/// The text of `tokens`.
pub(crate) fn print(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_print_back() {
        let text = "@%p1 ld.global.L1::no_allocate.v2.f32 {%f1, _}, [%rd1+-4]; // x\n\
                    $L: mov %tid.x, 0f3F800000;";
        let list = tokens(text);
        assert_eq!(print(&list), text);
        let dotted: Vec<&str> =
            list.iter().filter(|t| t.kind == Kind::Dotted).map(|t| t.text.as_str()).collect();
        assert_eq!(dotted, [".global", ".L1::no_allocate", ".v2", ".f32"]);
        assert!(list.iter().any(|token| token.text == "%tid.x"));
    }
}
