//! The module under construction, and its names.

use std::collections::{HashMap, HashSet};

use super::lexer::Position;
use super::scope::Meaning;
use super::{ParseError, Result};
use crate::ast::{Entry, Function, Linkage, Module, Parameter, Symbol, Variable};

/// A module under construction. Names are looked up in constant time.
pub(super) struct ModuleScope {
    pub(super) module: Module,
    /// Variables and functions.
    meanings: HashMap<String, Meaning>,
    /// The names of the entries.
    entries: HashSet<String>,
}

impl ModuleScope {
    /// Starts with a module that only has a header.
    pub(super) fn new(module: Module) -> Self {
        Self { module, meanings: HashMap::new(), entries: HashSet::new() }
    }

    /// The meaning of `name`.
    pub(super) fn find(&self, name: &str) -> Option<Meaning> {
        self.meanings.get(name).copied()
    }

    /// Whether `name` is a variable.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        matches!(self.find(name), Some(Meaning::Symbol(_)))
    }

    /// Adds an entry.
    pub(super) fn add_entry(&mut self, at: Position, entry: Entry) -> Result<()> {
        if self.meanings.contains_key(&entry.name) {
            return Err(taken(at, &entry.name));
        }
        if !self.entries.insert(entry.name.clone()) {
            let found = format!("entry `{}` again", entry.name);
            return Err(ParseError::new(at, found, "an entry name that is not taken"));
        }
        self.module.entries.push(entry);
        Ok(())
    }

    /// Declares a variable. An extern declaration and a definition of the same type may coexist, in
    /// either order.
    pub(super) fn declare_variable(&mut self, at: Position, variable: Variable) -> Result<()> {
        let again = |name: &str| Err(taken(at, name));
        let known = match self.find(&variable.name) {
            Some(Meaning::Symbol(Symbol::Module(index))) => index,
            None if !self.entries.contains(&variable.name) => {
                let symbol = Symbol::Module(self.module.variables.len() as u32);
                self.meanings.insert(variable.name.clone(), Meaning::Symbol(symbol));
                self.module.variables.push(variable);
                return Ok(());
            }
            _ => return again(&variable.name),
        };
        let known = &mut self.module.variables[known as usize];
        let is_same = (known.space, known.ty) == (variable.space, variable.ty);
        match (known.linkage, variable.linkage) {
            (Linkage::Internal, _) | (_, Linkage::Internal) => again(&variable.name),
            (_, Linkage::Extern) if is_same => Ok(()),
            (Linkage::Extern, _) if is_same => {
                *known = variable;
                Ok(())
            }
            _ => again(&variable.name),
        }
    }

    /// Declares a function, possibly again with the same signature, and returns its index.
    pub(super) fn declare_function(&mut self, at: Position, function: Function) -> Result<usize> {
        let name = &function.code.name;
        let index = match self.find(name) {
            Some(Meaning::Function(index)) => index as usize,
            None if !self.entries.contains(name) => {
                let index = self.module.functions.len();
                self.meanings.insert(name.clone(), Meaning::Function(index as u32));
                self.module.functions.push(function);
                return Ok(index);
            }
            _ => return Err(taken(at, name)),
        };
        let known = &mut self.module.functions[index];
        let (old, new) = (&known.code, &function.code);
        if !(fits(&new.parameters, &old.parameters) && fits(&new.results, &old.results)) {
            return Err(taken(at, name));
        }
        // The names of the body are declared before it.
        if !known.is_defined {
            *known = function;
        }
        Ok(index)
    }
}

fn taken(at: Position, name: &str) -> ParseError {
    ParseError::new(at, format!("`{name}` again"), "a name that is not taken")
}

/// Whether two declarations of a function have the same parameters.
fn fits(new: &[Parameter], old: &[Parameter]) -> bool {
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.fits(old))
}
