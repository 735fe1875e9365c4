//! The instances, derived from the instruction table.

mod choice;
mod special;

use retrograph_ptx::ast::{Modifier, Type};
use retrograph_ptx::instructions::{Form, Opcode};

use self::choice::Choice;
use super::instance::Instance;

/// A form without vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncovered {
    /// The form as the table prints it.
    pub form: String,
    /// The reason.
    pub reason: &'static str,
}

/// The reason for a form without an instance for any choice.
const NO_CHOICE: &str = "every choice is undocumented, not simulated, or in another state space";

/// All instances, and the forms that have none.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Instances by opcode.
    pub instances: Vec<Instance>,
    /// Forms without instances.
    pub uncovered: Vec<Uncovered>,
    /// Number of forms with instances.
    pub covered_forms: usize,
}

/// The plan for instructions that begin with `opcode`; for all if it is empty.
pub fn plan(opcode: &str) -> Plan {
    let mut plan = Plan::default();
    for &one in Opcode::ALL.iter().filter(|one| opcode.is_empty() || one.text() == opcode) {
        for form in one.forms() {
            match instances(one, form) {
                Ok(found) if !found.is_empty() => {
                    plan.covered_forms += 1;
                    plan.instances.extend(found);
                }
                Ok(_) => plan.leave_out(one, form, NO_CHOICE),
                Err(reason) => plan.leave_out(one, form, reason),
            }
        }
    }
    // Several forms may have the same instruction.
    let mut seen = std::collections::HashSet::new();
    plan.instances.retain(|instance| seen.insert(instance.name.clone()));
    plan
}

impl Plan {
    fn leave_out(&mut self, opcode: Opcode, form: &Form, reason: &'static str) {
        self.uncovered.push(Uncovered { form: format!("{opcode}{form}"), reason });
    }
}

fn instances(opcode: Opcode, form: &Form) -> Result<Vec<Instance>, &'static str> {
    if let Some(reason) = special::reason_against(opcode, form) {
        return Err(reason);
    }
    let mut found = Vec::new();
    for (modifiers, types) in choices(opcode, form) {
        for constant in special::constants(opcode, form) {
            let choice = Choice::new(opcode, form, modifiers.clone(), types.clone());
            found.extend(choice.instance(constant)?);
        }
    }
    let count = found.len();
    for instance in &mut found {
        instance.cases = special::cases(opcode, count);
    }
    Ok(found)
}

/// All combinations of modifiers and types. Modifiers that do not affect the computed value (state
/// space, cache, scope) are varied one at a time, with the first types.
fn choices(opcode: Opcode, form: &Form) -> Vec<(Vec<Modifier>, Vec<Type>)> {
    let types = type_choices(form);
    let mut all = Vec::new();
    for (modifiers, is_main) in modifier_choices(opcode, form) {
        let of_types = if is_main { types.as_slice() } else { &types[..1] };
        all.extend(of_types.iter().map(|types| (modifiers.clone(), types.clone())));
    }
    all
}

/// Choices of modifiers, each with whether it has only modifiers that affect the computed value.
fn modifier_choices(opcode: Opcode, form: &Form) -> Vec<(Vec<Modifier>, bool)> {
    let options = form.slots.iter().map(|slot| {
        let none = (!slot.required).then_some(None);
        none.into_iter().chain(slot.choices.iter().copied().map(Some)).collect::<Vec<_>>()
    });
    let options: Vec<_> = options.collect();
    let mut all: Vec<Vec<Option<Modifier>>> = vec![Vec::new()];
    for choices in &options {
        let extend = |before: &Vec<Option<Modifier>>| {
            let before = before.clone();
            choices.iter().map(move |choice| [&before[..], &[*choice]].concat())
        };
        all = all.iter().flat_map(extend).collect();
    }
    let is_sparse = special::has_modifiers_of_place(opcode);
    let weigh = |chosen: &Vec<Option<Modifier>>| {
        let differing = chosen.iter().zip(&options).filter(|(one, choices)| **one != choices[0]);
        let minor = |(one, _): &(&Option<Modifier>, _)| !one.is_some_and(special::says_what);
        let (all, minor) = (differing.clone().count(), differing.filter(minor).count());
        let is_main = !is_sparse || minor == 0;
        (is_main || all == 1)
            .then(|| (chosen.iter().copied().flatten().collect::<Vec<_>>(), is_main))
    };
    all.iter().filter_map(weigh).collect()
}

fn type_choices(form: &Form) -> Vec<Vec<Type>> {
    form.types.iter().fold(vec![Vec::new()], |partial, choices| {
        let extend = |before: &Vec<Type>| {
            let before = before.clone();
            choices.iter().map(move |of| [&before[..], &[*of]].concat())
        };
        partial.iter().flat_map(extend).collect()
    })
}
