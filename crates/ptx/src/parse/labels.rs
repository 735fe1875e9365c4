//! The labels of blocks. Branches may precede their label.

use std::collections::HashMap;

use super::lexer::{Position, Token};

/// The labels of each block, without nested blocks, by the token index of its `{`.
pub(super) struct Labels<'a>(HashMap<usize, Vec<&'a str>>);

impl<'a> Labels<'a> {
    /// Finds all labels in one pass, since a search for each block would read nested blocks again.
    pub(super) fn find(tokens: &[(Token<'a>, Position)]) -> Self {
        let mut labels: HashMap<usize, Vec<&str>> = HashMap::new();
        let mut open = Vec::new();
        for (index, next) in tokens.windows(3).enumerate() {
            match [next[0].0, next[1].0, next[2].0] {
                [Token::Symbol('{'), ..] => open.push(index),
                [Token::Symbol('}'), ..] => {
                    open.pop();
                }
                [
                    Token::Name(_),
                    Token::Symbol(':'),
                    Token::Dotted("branchtargets" | "callprototype" | "calltargets"),
                ] => {}
                [Token::Name(name), Token::Symbol(':'), _] => {
                    if let Some(block) = open.last() {
                        labels.entry(*block).or_default().push(name);
                    }
                }
                _ => {}
            }
        }
        Self(labels)
    }

    /// Takes the labels of the block whose `{` is token `index`.
    pub(super) fn take(&mut self, index: usize) -> Vec<&'a str> {
        self.0.remove(&index).unwrap_or_default()
    }
}
