//! Checks of a whole module against the instruction table.

use std::collections::{HashMap, HashSet};

use crate::ast::{
    Entry, Instruction, Module, Operand, Parameter, StateSpace, Statement, Symbol, Type, Variable,
};
use crate::instructions::{Names, Requirements, check, needs};
use crate::print::mnemonic;
use crate::target::{IsaVersion, SmTarget};

/// The reason why a module is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationError {
    /// An instruction has no form in the table.
    #[error("{entry}: `{instruction}`, statement {statement}: found {found}, expected {expected}")]
    Instruction {
        /// The entry.
        entry: String,
        /// The instruction, without operands.
        instruction: String,
        /// The index of the statement in the body.
        statement: usize,
        /// The found text.
        found: String,
        /// The forms of the table.
        expected: String,
    },
    /// An instruction needs a newer PTX ISA or SM target than the module has.
    #[error(
        "{entry}: `{instruction}` needs PTX ISA {min_isa} and {min_target}, but the module has \
         PTX ISA {isa} and {target}"
    )]
    TooNew {
        /// The entry.
        entry: String,
        /// The instruction, without operands.
        instruction: String,
        /// The version that it needs.
        min_isa: IsaVersion,
        /// The SM target that it needs.
        min_target: SmTarget,
        /// The version of the module.
        isa: IsaVersion,
        /// The target of the module.
        target: SmTarget,
    },
    /// The PTX ISA of the module does not know its target.
    #[error("{target} needs PTX ISA {min_isa}, but the module has {isa}")]
    IsaTooOld {
        /// The target of the module.
        target: SmTarget,
        /// The version that it needs.
        min_isa: IsaVersion,
        /// The version of the module.
        isa: IsaVersion,
    },
    /// A name is declared twice.
    #[error("{entry}: `{name}` is declared twice")]
    Duplicate {
        /// The entry, or "the module".
        entry: String,
        /// The name.
        name: String,
    },
    /// A label is not defined exactly once.
    #[error("{entry}: label `{label}` is defined {places} times instead of once")]
    Label {
        /// The entry.
        entry: String,
        /// The label.
        label: String,
        /// The number of occurrences in the body.
        places: usize,
    },
}

/// Checks every instruction of `module` against the table, and that its names are sound.
///
/// # Errors
/// The first error.
pub fn validate(module: &Module) -> Result<(), ValidationError> {
    let (isa, target, min_isa) = (module.isa, module.target, module.target.min_isa());
    if isa < min_isa {
        return Err(ValidationError::IsaTooOld { target, min_isa, isa });
    }
    let outer = module_names(module)?;
    codes(module).try_for_each(|entry| {
        check_names(&outer, entry)?;
        check_labels(entry)?;
        check_body(module, entry, &mut |_| {})
    })
}

/// Returns the lowest PTX ISA version that supports the target of `module` and all of its
/// instructions.
///
/// # Errors
/// The first instruction that is not in the table.
pub fn min_isa(module: &Module) -> Result<IsaVersion, ValidationError> {
    let mut least = module.target.min_isa();
    let newest = Module { isa: IsaVersion::new(u32::MAX, 0), ..module.clone() };
    if !module.functions.is_empty() {
        least = least.max(IsaVersion::new(2, 1));
    }
    for entry in codes(module) {
        check_body(&newest, entry, &mut |needs| least = least.max(needs.isa))?;
    }
    Ok(least)
}

/// The kernels and functions.
fn codes(module: &Module) -> impl Iterator<Item = &Entry> {
    module.functions.iter().map(|function| &function.code).chain(&module.entries)
}

/// The names of the variables and functions, and whether each is a variable.
fn module_names(module: &Module) -> Result<HashMap<&str, bool>, ValidationError> {
    let functions = module.functions.iter().map(|function| (&function.code.name[..], false));
    let variables = module.variables.iter().map(|variable| (&variable.name[..], true));
    let mut seen = HashMap::new();
    for (name, is_variable) in functions.chain(variables) {
        if seen.insert(name, is_variable).is_some() {
            let (entry, name) = ("the module".to_owned(), name.to_owned());
            return Err(ValidationError::Duplicate { entry, name });
        }
    }
    Ok(seen)
}

fn check_names(outer: &HashMap<&str, bool>, entry: &Entry) -> Result<(), ValidationError> {
    let mut seen = HashSet::new();
    let duplicate = |name| Err(ValidationError::Duplicate { entry: entry.name.clone(), name });
    for parameter in entry.parameters.iter().chain(&entry.results) {
        // A parameter may hide a function.
        let name = &parameter.name;
        if outer.get(name.as_str()) == Some(&true) || !seen.insert(name.clone()) {
            return duplicate(name.clone());
        }
    }
    let tables = entry.tables.iter().map(|table| table.name.clone());
    let prototypes = entry.prototypes.iter().map(|prototype| prototype.name.clone());
    let tables = tables.chain(prototypes);
    let variables = entry.variables.iter().map(|v| v.name.clone());
    let registers = entry.registers.iter().flat_map(|d| (0..d.len()).map(|i| d.name_of(i)));
    let labels = entry.labels.iter().cloned();
    for name in variables.chain(registers).chain(labels).chain(tables) {
        if outer.contains_key(name.as_str()) || !seen.insert(name.clone()) {
            return duplicate(name);
        }
    }
    Ok(())
}

fn check_labels(entry: &Entry) -> Result<(), ValidationError> {
    let mut places = vec![0usize; entry.labels.len()];
    for statement in &entry.body {
        if let Statement::Label(label) = statement
            && let Some(count) = places.get_mut(label.0 as usize)
        {
            *count += 1;
        }
    }
    match places.iter().position(|&count| count != 1) {
        None => Ok(()),
        Some(index) => Err(ValidationError::Label {
            entry: entry.name.clone(),
            label: entry.labels[index].clone(),
            places: places[index],
        }),
    }
}

fn check_body(
    module: &Module,
    entry: &Entry,
    visit: &mut dyn FnMut(Requirements),
) -> Result<(), ValidationError> {
    let registers = entry.register_types();
    let space = |symbol| space_of(module, entry, symbol);
    let parameter = |symbol| parameter_of(entry, symbol);
    let prototypes = &entry.prototypes[..];
    let registers = &registers[..];
    let names = Names { module, parameter: &parameter, registers, space: &space, prototypes };
    for (index, statement) in entry.body.iter().enumerate() {
        let Statement::Instruction(instruction) = statement else { continue };
        let fault = |found: String, expected: String| ValidationError::Instruction {
            entry: entry.name.clone(),
            instruction: mnemonic(instruction),
            statement: index,
            found,
            expected,
        };
        if let Some(what) = dangling(entry, registers.len(), instruction) {
            return Err(fault(format!("an undeclared {what}"), format!("a declared {what}")));
        }
        let guard = instruction.guard.map(|guard| registers[guard.predicate.0 as usize]);
        if let Some(ty) = guard.filter(|&ty| ty != Type::Pred) {
            return Err(fault(format!("a guard of type .{ty}"), "a predicate".to_owned()));
        }
        let form = check(instruction, &names).map_err(|m| fault(m.found, m.expected))?;
        let needs = needs(form, instruction);
        if !needs.are_met(module.isa, module.target) {
            return Err(ValidationError::TooNew {
                entry: entry.name.clone(),
                instruction: mnemonic(instruction),
                min_isa: needs.isa,
                min_target: needs.target(),
                isa: module.isa,
                target: module.target,
            });
        }
        visit(needs);
    }
    Ok(())
}

/// Finds a name that the entry does not declare. [`check`] handles symbols.
fn dangling(entry: &Entry, registers: usize, instruction: &Instruction) -> Option<&'static str> {
    let mut missing = None;
    instruction.visit_registers(|register, _| {
        if register.0 as usize >= registers {
            missing = Some("register");
        }
    });
    for operand in &instruction.operands {
        match operand {
            Operand::Label(label) if entry.label(*label).is_none() => missing = Some("label"),
            Operand::Targets(table) => match entry.tables.get(*table as usize) {
                Some(table) if table.labels.iter().all(|l| entry.label(*l).is_some()) => {}
                _ => missing = Some("table of labels"),
            },
            Operand::Prototype(index) if *index as usize >= entry.prototypes.len() => {
                missing = Some("prototype");
            }
            _ => {}
        }
    }
    missing
}

/// The space of a symbol.
pub(crate) fn space_of(module: &Module, entry: &Entry, symbol: Symbol) -> Option<StateSpace> {
    let of = |list: &[Variable], index: u32| list.get(index as usize).map(|v| v.space);
    match symbol {
        Symbol::Parameter(index) => entry.parameters.get(index as usize).map(|_| StateSpace::Param),
        Symbol::Result(index) => entry.results.get(index as usize).map(|_| StateSpace::Param),
        Symbol::Local(index) => of(&entry.variables, index),
        Symbol::Module(index) => of(&module.variables, index),
    }
}

/// The parameter that a symbol names; a `.param` variable of a call counts as one.
pub(crate) fn parameter_of(entry: &Entry, symbol: Symbol) -> Option<Parameter> {
    match symbol {
        Symbol::Parameter(index) => entry.parameters.get(index as usize).cloned(),
        Symbol::Result(index) => entry.results.get(index as usize).cloned(),
        Symbol::Local(index) => {
            let variable = entry.variables.get(index as usize);
            variable.filter(|v| v.space == StateSpace::Param).map(|v| Parameter {
                name: v.name.clone(),
                ty: v.ty,
                align: v.align,
                length: v.length,
                pointer: None,
            })
        }
        Symbol::Module(_) => None,
    }
}
