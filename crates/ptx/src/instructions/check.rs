//! Matching an instruction against the forms of its opcode.

use super::form::Form;
use super::operands::Checker;
use crate::ast::{
    Function, Instruction, Modifier, Module, Parameter, Prototype, StateSpace, Symbol, Type,
};

/// The declarations of an entry, by name.
pub(crate) struct Names<'a> {
    /// The module: its version and target select one of several forms.
    pub(crate) module: &'a Module,
    /// Returns the parameter, result or `.param` variable of a call that a symbol names.
    pub(crate) parameter: &'a dyn Fn(Symbol) -> Option<Parameter>,
    /// The types of the registers.
    pub(crate) registers: &'a [Type],
    /// Returns the space of a symbol, or `None` if there is no such symbol.
    pub(crate) space: &'a dyn Fn(Symbol) -> Option<StateSpace>,
    /// The prototypes of indirect calls.
    pub(crate) prototypes: &'a [Prototype],
}

impl Names<'_> {
    /// The functions that may be called.
    pub(super) fn functions(&self) -> &[Function] {
        &self.module.functions
    }
}

/// Why no form fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The invalid operand, if it is one.
    pub(crate) operand: Option<usize>,
    /// The found text.
    pub(crate) found: String,
    /// The expected text.
    pub(crate) expected: String,
    /// How far the form matched: known modifiers, types, all slots, operand count, operands.
    stage: usize,
}

impl Mismatch {
    fn new(stage: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { operand: None, found: found.into(), expected: expected.into(), stage }
    }
}

/// Returns the form of `instruction`, or the mismatch of the form that matched furthest. If the
/// module is too old, returns the first form that fits.
pub(crate) fn check(
    instruction: &Instruction,
    names: &Names<'_>,
) -> Result<&'static Form, Mismatch> {
    let mut newer: Option<&'static Form> = None;
    let (isa, target) = (names.module.isa, names.module.target);
    for form in instruction.opcode.forms().iter().filter(|form| is_similar(form, instruction)) {
        if check_form(form, instruction, names).is_ok() {
            if form.needs().are_met(isa, target) {
                return Ok(form);
            }
            newer = newer.or(Some(form));
        }
    }
    newer.ok_or_else(|| nearest(instruction, names))
}

/// Whether modifiers and types fit. Rejects most forms without creating a [`Mismatch`].
fn is_similar(form: &Form, instruction: &Instruction) -> bool {
    unknown(form, instruction).is_none() && types_fit(form, &instruction.types)
}

/// Returns the mismatch of the first form that matched furthest.
fn nearest(instruction: &Instruction, names: &Names<'_>) -> Mismatch {
    let forms = instruction.opcode.forms().iter();
    let mismatches = forms.filter_map(|form| check_form(form, instruction, names).err());
    let nearest = mismatches.reduce(|nearest, one| match nearest.stage < one.stage {
        true => one,
        false => nearest,
    });
    nearest.expect("every opcode has a form")
}

fn check_form(form: &Form, instruction: &Instruction, names: &Names<'_>) -> Result<(), Mismatch> {
    check_known(form, instruction)?;
    check_types(form, instruction)?;
    check_slots(form, instruction)?;
    if form.operands.len() != instruction.operands.len() {
        let found = format!("{} operands", instruction.operands.len());
        return Err(Mismatch::new(3, found, format!("{} operands", form.operands.len())));
    }
    let operands = form.operands.iter().zip(&instruction.operands).enumerate();
    for (index, (&shape, operand)) in operands {
        let checker = Checker { instruction, names };
        checker.check(shape, operand).map_err(|expected| Mismatch {
            operand: Some(index),
            found: checker.describe(operand),
            expected,
            stage: 4 + index,
        })?;
    }
    Ok(())
}

fn check_known(form: &Form, instruction: &Instruction) -> Result<(), Mismatch> {
    let opcode = instruction.opcode;
    match unknown(form, instruction) {
        None => Ok(()),
        Some(modifier) => {
            let found = format!("`.{modifier}` on `{opcode}`");
            Err(Mismatch::new(0, found, format!("{opcode}{form}")))
        }
    }
}

/// Returns a modifier that the form does not have.
fn unknown(form: &Form, instruction: &Instruction) -> Option<Modifier> {
    instruction.modifiers.iter().find(|&modifier| !form.has_slot_for(modifier))
}

fn check_slots(form: &Form, instruction: &Instruction) -> Result<(), Mismatch> {
    for slot in form.slots {
        let present = |modifier: &&Modifier| instruction.modifiers.has(**modifier);
        let filled = slot.choices.iter().filter(present).count();
        if filled > 1 || (slot.required && filled == 0) {
            let words: Vec<String> = slot.choices.iter().map(|word| format!(".{word}")).collect();
            let found = if filled == 0 { "none" } else { "several" };
            return Err(Mismatch::new(2, found, format!("one of {}", words.join(" "))));
        }
    }
    Ok(())
}

fn check_types(form: &Form, instruction: &Instruction) -> Result<(), Mismatch> {
    let found = &instruction.types;
    if types_fit(form, found) {
        return Ok(());
    }
    let words: Vec<String> = found.iter().map(|ty| format!(".{ty}")).collect();
    let found = if words.is_empty() { "no type".to_owned() } else { words.concat() };
    Err(Mismatch::new(1, found, format!("{}{form}", instruction.opcode)))
}

fn types_fit(form: &Form, found: &[Type]) -> bool {
    let wanted = form.types;
    wanted.len() == found.len()
        && wanted.iter().zip(found).all(|(choices, ty)| choices.contains(ty))
}
