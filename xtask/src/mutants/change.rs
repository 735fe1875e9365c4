//! One small change to a PTX text: to modifiers, types, registers, operands, constants, labels,
//! directives or symbols.

use rand::Rng;
use rand::seq::IndexedRandom;
use retrograph_ptx::ast::{Modifier, Opcode, Type};

use super::text::{Kind, Token};

/// Edge-case constants.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "3",
    "4",
    "8",
    "15",
    "16",
    "31",
    "32",
    "64",
    "255",
    "256",
    "4096",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "0x1F",
    "0b11",
    "017",
    "1.5",
    "0f3F800000",
    "0d3FF0000000000000",
    "0x",
    "1e3",
    "08",
    "7U",
];
const SYMBOLS: &[&str] =
    &[",", ";", "[", "]", "{", "}", "(", ")", "+", "-", "!", "|", "<", ">", ":", "@", "="];

/// Replacement tokens.
pub(crate) struct Pool {
    words: Vec<String>,
    opcodes: Vec<&'static str>,
    versions: Vec<&'static str>,
    targets: Vec<&'static str>,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let modifiers = Modifier::ALL.iter().map(|modifier| modifier.text());
        let types = Type::ALL.iter().map(|ty| ty.text());
        let directives =
            ["align", "reg", "shared", "local", "visible", "maxntid", "pragma", "weak"];
        let words = modifiers.chain(types).chain(directives);
        Self {
            words: words.map(|word| format!(".{word}")).collect(),
            opcodes: Opcode::ALL.iter().map(|opcode| opcode.text()).collect(),
            versions: vec!["6.3", "7.0", "7.1", "7.8", "8.0", "8.3", "9.0"],
            targets: vec!["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"],
        }
    }
}

/// Changes `tokens` at a random place; `None` if the place does not fit the change.
pub(crate) fn change(tokens: &[Token], pool: &Pool, random: &mut impl Rng) -> Option<Vec<Token>> {
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|&at| tokens[at].kind != Kind::Blank).collect();
    // Half of all tokens are commas and brackets, whose changes test little.
    let &first = solid.choose(random)?;
    let again = tokens[first].kind == Kind::Symbol && random.random_ratio(3, 4);
    let at = if again { *solid.choose(random)? } else { first };
    let mut list = tokens.to_vec();
    match tokens[at].kind {
        Kind::Dotted => dotted(&mut list, at, pool, random)?,
        Kind::Name => name(&mut list, at, pool, random)?,
        Kind::Number => number(&mut list, at, pool, random),
        _ => symbol(&mut list, at, random)?,
    }
    (list != tokens).then_some(list)
}

/// The non-blank token before or after `at`.
fn beside(list: &[Token], at: usize, forward: bool) -> Option<usize> {
    let solid = |index: &usize| list[*index].kind != Kind::Blank;
    if forward { (at + 1..list.len()).find(solid) } else { (0..at).rev().find(solid) }
}

fn dotted(list: &mut Vec<Token>, at: usize, pool: &Pool, random: &mut impl Rng) -> Option<()> {
    let word = |random: &mut _| {
        let text = pool.words.choose(random)?;
        Some(Token::new(Kind::Dotted, text.clone()))
    };
    match random.random_range(0..6) {
        0 => drop(list.remove(at)),
        1 => list.insert(at, list[at].clone()),
        2 => {
            let next = beside(list, at, true).filter(|&next| list[next].kind == Kind::Dotted)?;
            list.swap(at, next);
        }
        3 => {
            // A word of the same text is more likely to be valid.
            let others: Vec<usize> =
                (0..list.len()).filter(|&other| list[other].kind == Kind::Dotted).collect();
            list[at] = list[*others.choose(random)?].clone();
        }
        4 => list[at] = word(random)?,
        _ => {
            let word = word(random)?;
            list.insert(at + 1, word);
        }
    }
    Some(())
}

fn name(list: &mut Vec<Token>, at: usize, pool: &Pool, random: &mut impl Rng) -> Option<()> {
    let is_target = list[at].text.starts_with("sm_");
    let is_opcode = pool.opcodes.contains(&list[at].text.as_str());
    match random.random_range(0..6) {
        _ if is_target => list[at].text = (*pool.targets.choose(random)?).to_owned(),
        0 if is_opcode => list[at].text = (*pool.opcodes.choose(random)?).to_owned(),
        0 => drop(list.remove(at)),
        1 if !is_opcode => list[at].text = "_".to_owned(),
        2 if !is_opcode => list[at].text.push('9'),
        3 if !is_opcode => {
            // Swaps two operands.
            let comma = beside(list, at, true).filter(|&next| list[next].is(","))?;
            let other = beside(list, comma, true)?;
            list.swap(at, other);
        }
        4 if !is_opcode => {
            // Drops an operand with the comma before it.
            let comma = beside(list, at, false).filter(|&before| list[before].is(","))?;
            list.drain(comma..=at);
        }
        _ => {
            // In half of the cases a name of the same kind, which is more likely to be valid.
            let start = |name: &str| name.chars().take(2).collect::<String>();
            let (same, wanted) = (random.random_bool(0.5), start(&list[at].text));
            let fits =
                |other: &Token| other.kind == Kind::Name && (!same || start(&other.text) == wanted);
            let others: Vec<&Token> = list.iter().filter(|other| fits(other)).collect();
            list[at] = (*others.choose(random)?).clone();
        }
    }
    Some(())
}

fn number(list: &mut Vec<Token>, at: usize, pool: &Pool, random: &mut impl Rng) {
    let after_version =
        beside(list, at, false).is_some_and(|before| list[before].text == ".version");
    let text = if after_version { pool.versions.choose(random) } else { NUMBERS.choose(random) };
    match random.random_range(0..5) {
        0 if !after_version => drop(list.remove(at)),
        1 if !after_version => list.insert(at, Token::new(Kind::Symbol, "-")),
        2 if !after_version => {
            let names: Vec<Token> =
                list.iter().filter(|token| token.text.starts_with('%')).cloned().collect();
            if let Some(name) = names.choose(random) {
                list[at] = name.clone();
            }
        }
        _ => list[at].text = text.map_or_else(String::new, |text| (*text).to_owned()),
    }
}

fn symbol(list: &mut Vec<Token>, at: usize, random: &mut impl Rng) -> Option<()> {
    match random.random_range(0..4) {
        0 => drop(list.remove(at)),
        1 => list.insert(at, list[at].clone()),
        2 => {
            let next = beside(list, at, true)?;
            list.swap(at, next);
        }
        _ => list[at].text = (*SYMBOLS.choose(random)?).to_owned(),
    }
    Some(())
}
