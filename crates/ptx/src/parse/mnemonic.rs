//! Opcodes with their modifiers and types.

use super::body::forms;
use super::lexer::{Position, Token};
use super::{Cursor, ParseError, Result};
use crate::ast::{Modifier, Modifiers, Opcode, Type};

/// Reads an opcode, its modifiers in any order, and its types in theirs.
///
/// `ptxas` takes modifiers in any order, even after types, except for those that belong to the name
/// of the instruction, such as `.lo` of `mul.lo`, which come first.
pub(super) fn parse_mnemonic(cursor: &mut Cursor<'_>) -> Result<(Opcode, Modifiers, Vec<Type>)> {
    let at = cursor.position();
    let name = cursor.name("an instruction")?;
    let opcode = Opcode::from_text(name).ok_or_else(|| unknown_opcode(at, name))?;
    let (mut modifiers, mut types) = (Modifiers::NONE, Vec::new());
    let mut first = true;
    while let Token::Dotted(word) = cursor.peek() {
        let at = cursor.position();
        let pair = pair(cursor, opcode, word);
        let single = || Modifier::from_text(word).filter(|&modifier| has(opcode, modifier));
        let modifier = pair.or_else(single);
        if let Some(modifier) = modifier {
            if opcode.binds(modifier) && !first {
                let expected = format!("`.{word}` right after `{opcode}`");
                return Err(ParseError::new(at, format!("`.{word}`"), expected));
            }
            if !modifiers.insert(modifier) {
                let found = format!("`.{word}` again");
                return Err(ParseError::new(at, found, "each modifier once"));
            }
        } else if let Some(ty) = Type::from_text(word) {
            types.push(ty);
        } else {
            let expected = format!("a modifier or type of `{opcode}`");
            let help = format!("its forms are {}", forms(opcode));
            return Err(ParseError::new(at, format!("`.{word}`"), expected).help(help));
        }
        cursor.take();
        if pair.is_some() {
            cursor.take();
        }
        first = false;
    }
    Ok((opcode, modifiers, types))
}

/// The modifier of `opcode` that `word` and the next word are together, as in `.row.col`.
fn pair(cursor: &Cursor<'_>, opcode: Opcode, word: &str) -> Option<Modifier> {
    let Token::Dotted(next) = cursor.peek_second() else { return None };
    let is = |modifier: &Modifier| modifier.text().split_once('.') == Some((word, next));
    Modifier::ALL.iter().copied().find(|modifier| is(modifier) && has(opcode, *modifier))
}

/// Whether some form of `opcode` has `modifier`.
fn has(opcode: Opcode, modifier: Modifier) -> bool {
    opcode.forms().iter().any(|form| form.has_slot_for(modifier))
}

fn unknown_opcode(at: Position, name: &str) -> ParseError {
    let help = "see retrograph_ptx::instructions for how to add one";
    ParseError::new(at, format!("`{name}`"), "an instruction that the table knows").help(help)
}
