//! Thousands of random mutations of the instructions in `accepted.ptx`: the parser and `ptxas`
//! accept and reject the same ones, except for the differences that [`reason`] explains.
//!
//! The mutants of a line depend on its text, and hardly on other lines: a new line does not change
//! the mutants of other lines, except for a few that get a new word.

use std::collections::BTreeSet;

use retrograph_ptx::parse;

use crate::ptxas;
use crate::table::{FIRST_LINE, module_around};

const VERSION: &str = "9.0";
const TARGET: &str = "sm_90a";
/// Mutants of each line.
const PER_LINE: usize = 20;
/// Mutants that `ptxas` reads at a time.
const BATCH: usize = 64;

/// The splitmix64 generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Picks a word of the set by rendezvous hashing: adding a word changes few picks.
    fn pick_word(&mut self, set: &BTreeSet<String>) -> String {
        let draw = self.below(usize::MAX) as u64;
        let highest = set.iter().max_by_key(|word| Self(draw ^ hash(word)).below(usize::MAX));
        highest.expect("a set of words is not empty").clone()
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An instruction in pieces.
#[derive(Clone)]
struct Line {
    guard: String,
    /// The opcode and the following words.
    words: Vec<String>,
    operands: Vec<String>,
}

impl Line {
    /// Splits a line with one instruction; `None` for several.
    fn new(text: &str) -> Option<Self> {
        let text = text.trim().strip_suffix(';')?;
        if text.contains([';', ':', '(']) && !text.contains("::") {
            return None;
        }
        let (guard, text) = match text.starts_with('@') {
            true => text.split_once(' ').map(|(guard, rest)| (format!("{guard} "), rest))?,
            false => (String::new(), text),
        };
        let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
        let words = name.split('.').map(str::to_owned).collect();
        Some(Self { guard, words, operands: split(operands) })
    }

    fn text(&self) -> String {
        format!("{}{} {};", self.guard, self.words.join("."), self.operands.join(", "))
    }
}

/// Splits at the commas outside of brackets.
fn split(text: &str) -> Vec<String> {
    let (mut list, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            _ => {}
        }
        match list.last_mut() {
            Some(_) if c == ',' && depth == 0 => list.push(String::new()),
            Some(last) => last.push(c),
            None => {}
        }
    }
    list.iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// Replacements of an operand.
const OPERANDS: &[&str] = &[
    "%r1",
    "%rd1",
    "%f1",
    "%fd1",
    "%h1",
    "%p1",
    "!%p1",
    "%r1|%p2",
    "_",
    "0",
    "1",
    "-1",
    "256",
    "70000",
    "0x1ffffffff",
    "0f3F800000",
    "0d3FF0000000000000",
    "1.5",
    "%tid.x",
    "%clock64",
    "tile",
    "[%rd1]",
    "[%r1]",
    "[tile+4]",
    "[p]",
    "[table]",
    "{%r1, %r2}",
    "{%f1, %f2, %f3, %f4}",
    "{%rd1}",
    "done",
];

/// Damages a line in one place.
fn damage(line: &Line, words: &BTreeSet<String>, chance: &mut Chance) -> Line {
    let mut line = line.clone();
    let (count, operands) = (line.words.len(), line.operands.len());
    match chance.below(10) {
        0 | 1 if count > 1 => {
            let at = 1 + chance.below(count - 1);
            line.words[at] = chance.pick_word(words);
        }
        2 if count > 1 => {
            line.words.remove(1 + chance.below(count - 1));
        }
        3 => line.words.insert(1 + chance.below(count), chance.pick_word(words)),
        4 if count > 2 => {
            let (a, b) = (1 + chance.below(count - 1), 1 + chance.below(count - 1));
            line.words.swap(a, b);
        }
        5 if operands > 0 => {
            line.operands.remove(chance.below(operands));
        }
        6 if operands > 0 => {
            let again = line.operands[chance.below(operands)].clone();
            line.operands.insert(chance.below(operands + 1), again);
        }
        7 if operands > 1 => {
            let (a, b) = (chance.below(operands), chance.below(operands));
            line.operands.swap(a, b);
        }
        _ if operands > 0 => {
            let at = chance.below(operands);
            line.operands[at] = (*chance.pick(OPERANDS)).to_owned();
        }
        _ => line.words.push(chance.pick_word(words)),
    }
    line
}

/// The mutants, each once, without those that are not damaged.
fn mutants() -> Vec<String> {
    let lines = include_str!("accepted.ptx").lines().filter(|line| !line.starts_with("//"));
    let bare = lines.map(|line| match line.split_once("] ") {
        Some((_, rest)) if line.starts_with('[') => rest,
        _ => line,
    });
    let lines: Vec<Line> = bare.filter_map(Line::new).collect();
    let originals: BTreeSet<String> = lines.iter().map(Line::text).collect();
    let all: BTreeSet<String> = lines.iter().flat_map(|line| line.words[1..].to_vec()).collect();
    let mut found = BTreeSet::new();
    for line in &lines {
        let mut chance = Chance(hash(&line.text()));
        let same = lines.iter().filter(|other| other.words[0] == line.words[0]);
        let own: BTreeSet<String> = same.flat_map(|other| other.words[1..].to_vec()).collect();
        for _ in 0..PER_LINE {
            // Words of the same opcode come as often as all others.
            let words = if chance.below(2) == 0 && !own.is_empty() { &own } else { &all };
            found.insert(damage(line, words, &mut chance).text());
        }
    }
    found.into_iter().filter(|text| !originals.contains(text)).collect()
}

/// Whether there are more types than in any form of the opcode.
fn too_many_types(line: &Line) -> bool {
    use retrograph_ptx::ast::{Opcode, Type};
    let types = line.words[1..].iter().filter(|word| Type::from_text(word).is_some()).count();
    let forms = Opcode::from_text(&line.words[0]).map_or(&[][..], Opcode::forms);
    forms.iter().all(|form| form.types.len() < types)
}

/// The reason why `ptxas` may accept a statement that the parser rejects, if there is one.
fn reason(text: &str) -> Option<&'static str> {
    let line = Line::new(text)?;
    let words = &line.words[1..];
    let twice = |word: &String| words.iter().filter(|other| *other == word).count() > 1;
    let is_type = |word: &String| retrograph_ptx::ast::Type::from_text(word).is_some();
    let wide = |operand: &String| operand.contains("0x1ffffffff") || operand.contains("70000");
    let has_constant = |operand: &String| {
        let parts = operand.trim_matches(['{', '}']).split(',');
        parts.map(str::trim).any(|part| part.parse::<i64>().is_ok())
    };
    let apart = |a: &str, b: &str| {
        let at = |wanted: &str| words.iter().position(|word| word == wanted);
        at(a).zip(at(b)).is_some_and(|(a, b)| b != a + 1)
    };
    Some(match () {
        () if words.iter().any(|word| twice(word) && !is_type(word)) => {
            "a modifier that is written twice is taken for a mistake here, and ignored there"
        }
        () if line.operands.iter().any(wide) => {
            "a constant that does not fit its type is cut by ptxas"
        }
        () if apart("row", "col")
            || apart("shared", "global")
            || apart("shared::cluster", "global")
            || apart("global", "shared::cta")
            || apart("arrive", "noComplete")
            || apart("inc", "sync")
            || apart("dec", "sync") =>
        {
            "two adjacent words that have a meaning together may be apart for ptxas"
        }
        () if too_many_types(&line) => "a type too many is ignored by ptxas",
        () if line.operands.len() > 3 && line.words[0] == "atom" => {
            "an operand too many of an atomic operation is ignored by ptxas"
        }
        () if line.operands.iter().any(|one| one.starts_with('{') && !one.contains(',')) => {
            "a vector of one register is a register for ptxas"
        }
        () if line.words[0] == "cvt" && line.operands.iter().any(|one| one.contains('.')) => {
            "special registers are read by mov only; ptxas converts them too"
        }
        () if line.words[0] == "cvt" && line.operands.len() == 3 => {
            "ptxas does not check the type of the second of two sources"
        }
        () if line.words[0] == "stmatrix" && line.operands.iter().any(has_constant) => {
            "ptxas takes constants in a fragment that is stored"
        }
        () if line.words[0] == "wgmma" && line.operands.iter().take(3).any(has_constant) => {
            "ptxas takes a constant in place of a descriptor"
        }
        () if words.iter().any(|word| matches!(&word[..], "notanumber" | "finite")) => {
            "ptxas passes over the words of testp"
        }
        () if words.iter().any(|word| word == "sat") && line.words[0].ends_with("addc") => {
            "no manual says what a sum with a carry is cut to"
        }
        () if line.words[0] == "shfl" => "the lane of a shuffle is no float",
        () if line.words[0] == "testp" => "no manual says what testp without a class tests",
        () if line.words[0] == "cp" => "a register of 32 bits holds no address of global memory",
        () => return None,
    })
}

/// Whether this is `bmsk.b32` of a float register, which the parser accepts like any other operand
/// of type `.b32`, but `ptxas` rejects.
fn is_bmsk_of_floats(text: &str) -> bool {
    text.starts_with("bmsk.") && text.contains("%f")
}

/// Returns which statements `ptxas` accepts; `None` without `ptxas`.
fn verdicts(batch: &[String]) -> Option<Vec<bool>> {
    let mut taken = vec![true; batch.len()];
    loop {
        // A rejected statement leaves its line empty.
        let lines: Vec<&str> = batch
            .iter()
            .zip(&taken)
            .map(|(text, ok)| if *ok { text.as_str() } else { "" })
            .collect();
        let text = module_around(VERSION, TARGET, &lines.join("\n"));
        let Err(said) = ptxas::assemble(&text, TARGET)? else { return Some(taken) };
        let faults = said.lines().filter_map(|line| {
            // Addresses of 32 bits are a warning with a line, and a fatal error without one.
            if let Some((_, rest)) = line.split_once("32-bit address on line '") {
                return rest.split('\'').next()?.parse().ok();
            }
            let (_, rest) = line.split_once(", line ")?;
            let (number, message) = rest.split_once(';')?;
            let number: usize = number.parse().ok()?;
            (message.contains("error") || message.contains("fatal")).then_some(number)
        });
        let mut progress = false;
        for line in faults {
            if let Some(ok) = line.checked_sub(FIRST_LINE).and_then(|index| taken.get_mut(index)) {
                progress |= *ok;
                *ok = false;
            }
        }
        if !progress {
            // The message names no statement, so each is tested alone.
            for (text, ok) in batch.iter().zip(&mut taken).filter(|(_, ok)| **ok) {
                let alone = module_around(VERSION, TARGET, text);
                *ok = ptxas::assemble(&alone, TARGET)?.is_ok();
            }
            return Some(taken);
        }
    }
}

#[test]
fn the_parser_and_ptxas_agree_on_damaged_instructions() {
    let all = mutants();
    assert!(all.len() > 4000, "{} mutants", all.len());
    let (mut surprises, mut agreed) = (Vec::new(), [0, 0]);
    for batch in all.chunks(BATCH) {
        let Some(taken) = verdicts(batch) else { return };
        for (text, taken) in batch.iter().zip(taken) {
            let parsed = parse(&module_around(VERSION, TARGET, text)).is_ok();
            match (parsed, taken) {
                _ if parsed == taken => agreed[usize::from(taken)] += 1,
                (false, true) if reason(text).is_some() => {}
                (true, false) if is_bmsk_of_floats(text) => {}
                (true, _) => surprises.push(format!("only the parser takes  {text}")),
                (false, _) => surprises.push(format!("only ptxas takes  {text}")),
            }
        }
    }
    assert!(surprises.is_empty(), "{} of {}\n{}", surprises.len(), all.len(), surprises.join("\n"));
    // Agreement is significant only if each verdict occurs often.
    assert!(agreed[0] > 3000 && agreed[1] > 300, "{agreed:?}");
}
