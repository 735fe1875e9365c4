//! Words of a line, and the substitution of names.

use super::Line;

/// Words, with blanks inside quotes.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for character in text.chars() {
        match quote {
            None if character.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if matches!(character, '"' | '\'') => quote = Some(character),
            Some(open) if open == character => quote = None,
            _ => {}
        }
        word.push(character);
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// An argument of a snippet without the quotes around its blanks. A quoted single word is a string
/// and keeps them.
pub(super) fn unquoted(word: String) -> String {
    let inside = ['"', '\'']
        .iter()
        .find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote))
        .filter(|inside| inside.contains(char::is_whitespace));
    inside.map(str::to_owned).unwrap_or(word)
}

/// The line with values for names; a value may name another one.
pub(super) fn substituted(line: &Line, bindings: &[(&str, &str)]) -> Line {
    let text = substitute(&substitute(&line.text, bindings), bindings);
    Line { text, place: line.place.clone() }
}

/// Replaces `$name` and `${name}`; the longest name that fits counts.
pub(super) fn substitute(text: &str, bindings: &[(&str, &str)]) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, length) = match after.strip_prefix('{').and_then(|inside| inside.find('}')) {
            Some(end) => (&after[1..=end], end + 2),
            None => {
                let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
                let end = end.unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match bindings.iter().find(|(bound, _)| *bound == name) {
            Some((_, value)) => result.push_str(value),
            None => result.push_str(&rest[at..=at + length]),
        }
        rest = &after[length..];
    }
    result + rest
}

/// A comment begins with `#` at the start of a line or after a blank, outside quotes.
pub(super) fn without_comment(text: &str) -> &str {
    let (mut quoted, mut before) = (false, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted && before.is_whitespace() => return &text[..at],
            _ => {}
        }
        before = character;
    }
    text
}
