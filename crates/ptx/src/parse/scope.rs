//! The names in scope, and the entry under construction.

use std::collections::{HashMap, HashSet};

use super::lexer::Position;
use super::module_scope::ModuleScope;
use super::nested::Nested;
use super::{ParseError, Result};
use crate::ast::{
    BranchTable, Entry, LabelId, Parameter, Prototype, RegisterDeclaration, RegisterId, StateSpace,
    Symbol, Type, Variable,
};

/// The maximum number of registers of an entry. Each has a name in memory during parsing.
const MAX_REGISTERS: usize = 1 << 20;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Register(RegisterId),
    Symbol(Symbol),
    Function(u32),
    Table(u32),
    Prototype(u32),
}

/// An entry under construction.
pub(super) struct Scope<'m> {
    pub(super) outer: &'m ModuleScope,
    pub(super) entry: Entry,
    /// The types of the registers so far.
    pub(super) types: Vec<Type>,
    /// The parameters outside of all blocks, and the declarations of the blocks.
    names: Nested<Meaning>,
    /// The labels of the open blocks, known in advance.
    labels: Nested<Label>,
    /// The number of open blocks.
    depth: usize,
    /// Every name of the entry so far, open block or not.
    taken: HashSet<String>,
    /// How often each name was declared again.
    again: HashMap<String, u32>,
}

/// A label: its number once it has been named, and whether it has been placed.
#[derive(Clone, Copy, Default)]
struct Label {
    id: Option<LabelId>,
    placed: bool,
}

impl<'m> Scope<'m> {
    /// The scope of `entry`, whose parameters are known.
    pub(super) fn new(outer: &'m ModuleScope, entry: Entry) -> Self {
        let mut names = Nested::default();
        for (index, parameter) in (0..).zip(&entry.parameters) {
            names.insert(&parameter.name, Meaning::Symbol(Symbol::Parameter(index)));
        }
        for (index, result) in (0..).zip(&entry.results) {
            names.insert(&result.name, Meaning::Symbol(Symbol::Result(index)));
        }
        let all = entry.parameters.iter().chain(&entry.results);
        let taken = all.map(|parameter| parameter.name.clone()).collect();
        let (types, labels, again) = Default::default();
        Self { outer, entry, types, names, labels, depth: 0, taken, again }
    }

    /// Opens a block, `{`, with its labels.
    pub(super) fn open(&mut self, labels: &[&str]) {
        self.depth += 1;
        self.names.open();
        self.labels.open();
        for name in labels {
            self.labels.insert(name, Label::default());
        }
    }

    /// Closes a block, `}`. Returns false if it is the body of the entry.
    pub(super) fn close(&mut self) -> bool {
        self.depth -= 1;
        self.names.close();
        self.labels.close();
        self.depth > 0
    }

    /// The meaning of `name`.
    pub(super) fn find(&self, name: &str) -> Option<Meaning> {
        self.names.get(name).copied().or_else(|| self.outer.find(name))
    }

    /// The space of a symbol.
    pub(super) fn space(&self, symbol: Symbol) -> Option<StateSpace> {
        crate::validate::space_of(&self.outer.module, &self.entry, symbol)
    }

    /// The parameter that a symbol names; a `.param` variable of a call counts as one.
    pub(super) fn parameter(&self, symbol: Symbol) -> Option<Parameter> {
        crate::validate::parameter_of(&self.entry, symbol)
    }

    fn bind(&mut self, at: Position, name: &str, meaning: Meaning) -> Result<()> {
        if self.labels.is_here(name) {
            let found = format!("label `{name}`, which is also a variable");
            return Err(ParseError::new(at, found, "a name that is not taken"));
        }
        // The parameters are in the scope of the outermost block.
        let is_parameter = self.depth == 1 && self.names.get(name).is_some();
        if is_parameter || !self.names.insert(name, meaning) {
            return Err(ParseError::new(at, format!("`{name}` again"), "a name that is not taken"));
        }
        Ok(())
    }

    /// Declares registers.
    pub(super) fn declare_registers(
        &mut self,
        at: Position,
        mut declaration: RegisterDeclaration,
    ) -> Result<()> {
        let total = self.types.len() + declaration.len() as usize;
        if total > MAX_REGISTERS {
            let expected = format!("at most {MAX_REGISTERS} registers in an entry");
            return Err(ParseError::new(at, format!("{total} registers"), expected));
        }
        for index in 0..declaration.len() {
            let register = RegisterId(self.types.len() as u32);
            self.types.push(declaration.ty);
            self.bind(at, &declaration.name_of(index), Meaning::Register(register))?;
        }
        declaration.name = self.fresh(declaration.name.clone(), |name| {
            let renamed = RegisterDeclaration { name: name.to_owned(), ..declaration.clone() };
            (0..renamed.len()).map(move |index| renamed.name_of(index))
        });
        self.entry.registers.push(declaration);
        Ok(())
    }

    /// Declares a variable of the entry.
    pub(super) fn declare_variable(&mut self, at: Position, mut variable: Variable) -> Result<()> {
        let symbol = Symbol::Local(self.entry.variables.len() as u32);
        self.bind(at, &variable.name, Meaning::Symbol(symbol))?;
        variable.name = self.fresh(variable.name.clone(), one);
        self.entry.variables.push(variable);
        Ok(())
    }

    /// Returns a name that is unique in the entry and reserves it. An inner block may reuse a name,
    /// but [`Entry`] has no blocks. `expand` returns all names of a declaration.
    fn fresh<I>(&mut self, name: String, expand: impl Fn(&str) -> I) -> String
    where
        I: Iterator<Item = String>,
    {
        let is_taken =
            |name: String| self.taken.contains(&name) || self.outer.find(&name).is_some();
        if !expand(&name).any(is_taken) {
            self.taken.extend(expand(&name));
            return name;
        }
        // Numbers that were tried before are not free.
        let number = self.again.entry(name.clone()).or_default();
        let renamed = |number: u32| format!("{name}_{number}_");
        *number += 1;
        while expand(&renamed(*number)).any(is_taken) {
            *number += 1;
        }
        let fresh = renamed(*number);
        self.taken.extend(expand(&fresh));
        fresh
    }

    /// The label `name` of the innermost block that has it, which may come later.
    pub(super) fn label(&mut self, at: Position, name: &str) -> Result<LabelId> {
        let Some(label) = self.labels.get(name).copied() else {
            let found = format!("label `{name}`, which is not defined");
            return Err(ParseError::new(at, found, "a label of this block or one around it"));
        };
        if let Some(id) = label.id {
            return Ok(id);
        }
        let id = LabelId(self.entry.labels.len() as u32);
        let unique = self.fresh(name.to_owned(), one);
        self.entry.labels.push(unique);
        if let Some(label) = self.labels.get_mut(name) {
            label.id = Some(id);
        }
        Ok(id)
    }

    /// Places a label.
    pub(super) fn place(&mut self, at: Position, name: &str) -> Result<LabelId> {
        let id = self.label(at, name)?;
        if self.depth == 1 && self.names.get(name).is_some() {
            let found = format!("label `{name}`, which is also a parameter");
            return Err(ParseError::new(at, found, "a name that is not taken"));
        }
        let is_here = self.labels.is_here(name);
        let label = self.labels.get_mut(name).filter(|_| is_here);
        if label.is_none_or(|label| std::mem::replace(&mut label.placed, true)) {
            let found = format!("label `{name}` again");
            return Err(ParseError::new(at, found, "a label that is not taken"));
        }
        Ok(id)
    }

    /// Declares a table of labels.
    pub(super) fn declare_table(&mut self, at: Position, table: BranchTable) -> Result<()> {
        let meaning = Meaning::Table(self.entry.tables.len() as u32);
        self.bind(at, &table.name, meaning)?;
        let name = self.fresh(table.name, one);
        self.entry.tables.push(BranchTable { name, ..table });
        Ok(())
    }

    /// Declares a prototype.
    pub(super) fn declare_prototype(&mut self, at: Position, declared: Prototype) -> Result<()> {
        let meaning = Meaning::Prototype(self.entry.prototypes.len() as u32);
        self.bind(at, &declared.name, meaning)?;
        let name = self.fresh(declared.name, one);
        self.entry.prototypes.push(Prototype { name, ..declared });
        Ok(())
    }

    /// Returns the finished entry.
    pub(super) fn finish(self) -> Entry {
        self.entry
    }
}

/// The names of a declaration with a single one.
fn one(name: &str) -> std::iter::Once<String> {
    std::iter::once(name.to_owned())
}
