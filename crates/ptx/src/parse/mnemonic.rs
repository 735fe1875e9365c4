//! Opcodes with their modifiers and types.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::body::forms;
use super::lexer::{Position, Token};
use super::{Cursor, ParseError, Result};
use crate::ast::{Modifier, Modifiers, Opcode, Type};

/// Instructions of PTX ISA 9.0 that the table lacks.
const MISSING: &[&str] = &[
    "alloca",
    "applypriority",
    "clusterlaunchcontrol",
    "createpolicy",
    "discard",
    "istypep",
    "multimem",
    "pmevent",
    "stackrestore",
    "stacksave",
    "suld",
    "suq",
    "sured",
    "sust",
    "tcgen05",
    "tensormap",
    "tex",
    "tld4",
    "txq",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
];

/// Reads an opcode, its modifiers in any order, and its types in order.
///
/// `ptxas` accepts modifiers in any order, even after types, except modifiers that are part of the
/// name of the instruction, such as `.lo` of `mul.lo`, which come first.
pub(super) fn parse_mnemonic(cursor: &mut Cursor<'_>) -> Result<(Opcode, Modifiers, Vec<Type>)> {
    let at = cursor.position();
    let name = cursor.name("an instruction")?;
    let opcode = Opcode::from_text(name).ok_or_else(|| unknown_opcode(at, name))?;
    let (mut modifiers, mut types) = (Modifiers::NONE, Vec::new());
    // Whether all modifiers so far are part of the name, and the last one of them.
    let (mut in_name, mut last) = (true, None);
    while let Token::Dotted(word) = cursor.peek() {
        let at = cursor.position();
        let joined = joined(cursor, opcode);
        let single = || Modifier::from_text(word).filter(|&modifier| has(opcode, modifier));
        let modifier = joined.or_else(single);
        if let Some(modifier) = modifier {
            let is_bound = opcode.binds(modifier);
            if is_bound && !(in_name && last < Some(modifier)) {
                let expected = format!("`.{word}` right after `{opcode}`");
                return Err(ParseError::new(at, format!("`.{word}`"), expected));
            }
            (in_name, last) = (in_name && is_bound, Some(modifier));
            if !modifiers.insert(modifier) {
                let found = format!("`.{word}` again");
                return Err(ParseError::new(at, found, "each modifier once"));
            }
        } else if let Some(ty) = Type::from_text(word) {
            in_name = false;
            types.push(ty);
        } else {
            let expected = format!("a modifier or type of `{opcode}`");
            let help = format!("its forms are {}", forms(opcode));
            return Err(ParseError::new(at, format!("`.{word}`"), expected).help(help));
        }
        for _ in 0..joined.map_or(1, words) {
            cursor.take();
        }
    }
    Ok((opcode, modifiers, types))
}

/// Returns the longest modifier of `opcode` that the next words form together, as in `.row.col`.
fn joined(cursor: &Cursor<'_>, opcode: Opcode) -> Option<Modifier> {
    let next = |index: usize| cursor.tokens.get(cursor.next + index).map(|(token, _)| *token);
    let is = |modifier: &Modifier| {
        let mut texts = modifier.text().split('.').enumerate();
        texts.all(|(index, text)| next(index) == Some(Token::Dotted(text)))
    };
    let Some(Token::Dotted(first)) = next(0) else { return None };
    let several = OF_SEVERAL_WORDS.get(first)?.iter().copied();
    several.filter(|one| is(one) && has(opcode, *one)).max_by_key(|&one| words(one))
}

/// The modifiers of more than one word, by the first one.
static OF_SEVERAL_WORDS: LazyLock<HashMap<&str, Vec<Modifier>>> = LazyLock::new(|| {
    let mut by_first = HashMap::<_, Vec<_>>::new();
    for &modifier in Modifier::ALL {
        if let Some((first, _)) = modifier.text().split_once('.') {
            by_first.entry(first).or_default().push(modifier);
        }
    }
    by_first
});

/// Returns the number of words of a modifier.
fn words(modifier: Modifier) -> usize {
    modifier.text().split('.').count()
}

/// Whether some form of `opcode` has `modifier`.
fn has(opcode: Opcode, modifier: Modifier) -> bool {
    opcode.forms().iter().any(|form| form.has_slot_for(modifier))
}

fn unknown_opcode(at: Position, name: &str) -> ParseError {
    let help = "see retrograph_ptx::instructions for how to add one";
    let error = ParseError::new(at, format!("`{name}`"), "an instruction that the table knows");
    ParseError { is_missing: MISSING.contains(&name), ..error.help(help) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_instructions_are_not_in_the_table() {
        let known: Vec<_> =
            MISSING.iter().filter(|name| Opcode::from_text(name).is_some()).collect();
        assert!(known.is_empty(), "{known:?}");
    }

    #[test]
    fn an_unsupported_instruction_differs_from_an_unknown_one() {
        let text = |name: &str| {
            format!(
                ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n\
                 {{\n{name};\nret;\n}}\n"
            )
        };
        assert!(crate::parse(&text("tcgen05.wait::ld.sync.aligned")).unwrap_err().is_missing);
        assert!(!crate::parse(&text("tcgen06.wait::ld.sync.aligned")).unwrap_err().is_missing);
    }
}
