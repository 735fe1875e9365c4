//! Rewrites the instructions of a chat template: operators become calls to metered functions.

use minijinja::Value;
use minijinja::machinery::{Instruction, Instructions};

/// The function that counts a list or a map.
pub(super) const VALUE: &str = "value of a literal";
/// The function that checks new attributes of a namespace.
pub(super) const ATTRIBUTE: &str = "attribute of a namespace";
/// The function of `a[b:c:d]`.
pub(super) const SLICE: &str = "slice of a value";

/// The name of the function of each operator, which no template can call, and its expression.
pub(super) const OPERATORS: [(&str, &str); 10] = [
    ("+", "a + b"),
    ("*", "a * b"),
    ("~", "a ~ b"),
    ("==", "a == b"),
    ("!=", "a != b"),
    ("<", "a < b"),
    ("<=", "a <= b"),
    (">", "a > b"),
    (">=", "a >= b"),
    ("in", "a in b"),
];

/// Returns the function of an instruction, and its number of arguments.
fn function(instruction: &Instruction<'_>) -> Option<(&'static str, u16)> {
    Some(match instruction {
        Instruction::Add => ("+", 2),
        Instruction::Mul => ("*", 2),
        Instruction::StringConcat => ("~", 2),
        Instruction::Eq => ("==", 2),
        Instruction::Ne => ("!=", 2),
        Instruction::Lt => ("<", 2),
        Instruction::Lte => ("<=", 2),
        Instruction::Gt => (">", 2),
        Instruction::Gte => (">=", 2),
        Instruction::In => ("in", 2),
        Instruction::Slice => (SLICE, 4),
        _ => return None,
    })
}

/// Rewrites all instructions, and adjusts jump targets.
pub(super) fn metered<'a>(
    name: &'a str,
    text: &'a str,
    instructions: &Instructions<'a>,
) -> Instructions<'a> {
    let all = || (0..).map_while(|index| instructions.get(index).map(|one| (index, one)));
    let mut places = Vec::with_capacity(instructions.len() + 1);
    let mut place = 0;
    for (_, instruction) in all() {
        places.push(place);
        place += replacement(instruction.clone()).len() as u32;
    }
    places.push(place);
    let mut metered = Instructions::new(name, text);
    for (index, instruction) in all() {
        let mut instruction = instruction.clone();
        if let Some(target) = target(&mut instruction) {
            *target = places[*target as usize];
        }
        let line = instructions.get_line(index).and_then(|line| u16::try_from(line).ok());
        for one in replacement(instruction) {
            match line {
                Some(line) => metered.add_with_line(one, line),
                None => metered.add(one),
            };
        }
    }
    metered
}

/// Returns the jump target of an instruction, an index.
fn target<'a>(instruction: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// Returns the replacement of an instruction.
fn replacement(instruction: Instruction<'_>) -> Vec<Instruction<'_>> {
    let call = |name, arguments| Instruction::CallFunction(name, Some(arguments));
    if let Some((name, arguments)) = function(&instruction) {
        return vec![call(name, arguments)];
    }
    match instruction {
        Instruction::EmitRaw(text) => {
            vec![Instruction::LoadConst(Value::from(text)), Instruction::Emit]
        }
        Instruction::BuildList(_) | Instruction::BuildMap(_) => vec![instruction, call(VALUE, 1)],
        Instruction::SetAttr(_) => {
            vec![Instruction::Swap, call(ATTRIBUTE, 1), Instruction::Swap, instruction]
        }
        other => vec![other],
    }
}
