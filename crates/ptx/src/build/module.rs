//! Builds a module from entries.

use super::shared::DYNAMIC;
use crate::ast::{
    AddressBase, Entry, Instruction, Linkage, Module, Operand, Statement, Symbol, Variable,
};
use crate::target::SmTarget;
use crate::validate::{min_isa, validate};

/// Collects entries into a module.
#[derive(Debug)]
pub struct ModuleBuilder {
    target: SmTarget,
    entries: Vec<Entry>,
}

impl ModuleBuilder {
    /// A module for `target` without entries.
    pub fn new(target: SmTarget) -> Self {
        Self { target, entries: Vec::new() }
    }

    /// Adds an entry.
    #[must_use]
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    /// Returns the module, with the lowest PTX ISA version that supports the target and every
    /// instruction.
    ///
    /// # Panics
    /// If the module is not valid, for example because an instruction needs a newer SM target.
    #[track_caller]
    pub fn build(self) -> Module {
        let mut variables: Vec<Variable> = Vec::new();
        let mut entries = self.entries;
        for entry in &mut entries {
            hoist(entry, &mut variables);
        }
        let isa = self.target.min_isa();
        let (target, functions, lines) = (self.target, Vec::new(), Default::default());
        let mut module = Module { isa, target, variables, functions, entries, lines };
        let checked = min_isa(&module).and_then(|isa| {
            module.isa = isa;
            validate(&module)
        });
        match checked {
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Moves dynamic shared memory out of the entry, since PTX declares it at module scope.
fn hoist(entry: &mut Entry, variables: &mut Vec<Variable>) {
    let Some(local) = entry.variables.iter().position(|v| v.linkage == Linkage::Extern) else {
        return;
    };
    let variable = entry.variables.remove(local);
    let known = variables.iter().position(|variable| variable.name == DYNAMIC);
    let module = match known {
        Some(known) => {
            variables[known].align = variables[known].align.max(variable.align);
            known
        }
        None => {
            variables.push(variable);
            variables.len() - 1
        }
    };
    let (local, module) = (local as u32, module as u32);
    for statement in &mut entry.body {
        if let Statement::Instruction(instruction) = statement {
            each_symbol(instruction, |symbol| match *symbol {
                Symbol::Local(index) if index == local => *symbol = Symbol::Module(module),
                Symbol::Local(index) if index > local => *symbol = Symbol::Local(index - 1),
                _ => {}
            });
        }
    }
}

fn each_symbol(instruction: &mut Instruction, mut change: impl FnMut(&mut Symbol)) {
    for operand in &mut instruction.operands {
        match operand {
            Operand::Symbol(symbol, _) => change(symbol),
            Operand::Address(address) => {
                if let AddressBase::Symbol(symbol) = &mut address.base {
                    change(symbol);
                }
            }
            _ => {}
        }
    }
}
