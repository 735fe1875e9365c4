//! The names that are in sight, and the entry that is being read.

use std::collections::{HashMap, HashSet};

use super::lexer::Position;
use super::{ParseError, Result};
use crate::ast::{
    BranchTable, Entry, LabelId, Module, Parameter, Prototype, RegisterDeclaration, RegisterId,
    Space, Symbol, Type, Variable,
};

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Register(RegisterId),
    Symbol(Symbol),
    Function(u32),
    Table(u32),
    Prototype(u32),
}

/// An entry while it is being read.
pub(super) struct Scope<'m> {
    pub(super) module: &'m Module,
    pub(super) entry: Entry,
    /// The types of the registers so far.
    pub(super) types: Vec<Type>,
    /// The open blocks, outermost first: the module, the parameters, the body.
    blocks: Vec<Block>,
    /// Every name of the entry so far, open block or not.
    taken: HashSet<String>,
}

/// The declarations of a block.
#[derive(Default)]
struct Block {
    names: HashMap<String, Meaning>,
    /// The labels of the block, known in advance.
    labels: HashMap<String, Label>,
}

/// A label: its number once it has been named, and whether it has been placed.
#[derive(Clone, Copy, Default)]
struct Label {
    id: Option<LabelId>,
    placed: bool,
}

impl<'m> Scope<'m> {
    /// The scope of `entry`, whose parameters are known.
    pub(super) fn new(module: &'m Module, entry: Entry) -> Self {
        let symbols = |symbol: fn(u32) -> Symbol| move |index| Meaning::Symbol(symbol(index));
        let variables = module.variables.iter().map(|variable| &variable.name);
        let functions = module.functions.iter().map(|function| &function.code.name);
        let outer = numbered(variables, symbols(Symbol::Module));
        let outer = outer.into_iter().chain(numbered(functions, Meaning::Function)).collect();
        let parameters = entry.parameters.iter().map(|parameter| &parameter.name);
        let results = entry.results.iter().map(|result| &result.name);
        let inner = numbered(parameters, symbols(Symbol::Parameter));
        let inner = inner.into_iter().chain(numbered(results, symbols(Symbol::Result))).collect();
        let block = |names| Block { names, labels: HashMap::new() };
        let blocks = vec![block(outer), block(inner)];
        let taken = blocks.iter().flat_map(|block| block.names.keys()).cloned().collect();
        Self { module, entry, types: Vec::new(), blocks, taken }
    }

    /// Opens a block, `{`, with its labels.
    pub(super) fn open<'t>(&mut self, labels: impl Iterator<Item = &'t str>) {
        let labels = labels.map(|name| (name.to_owned(), Label::default())).collect();
        self.blocks.push(Block { names: HashMap::new(), labels });
    }

    /// Closes a block, `}`. False when none is open.
    pub(super) fn close(&mut self) -> bool {
        // The first two are the module and the parameters.
        let open = self.blocks.len() > 3;
        if open {
            self.blocks.pop();
        }
        open
    }

    /// The meaning of `name`.
    pub(super) fn find(&self, name: &str) -> Option<Meaning> {
        self.blocks.iter().rev().find_map(|block| block.names.get(name)).copied()
    }

    /// The space of a symbol.
    pub(super) fn space(&self, symbol: Symbol) -> Option<Space> {
        crate::validate::space_of(self.module, &self.entry, symbol)
    }

    /// The parameter that a symbol is, or that the variable of a call would be.
    pub(super) fn parameter(&self, symbol: Symbol) -> Option<Parameter> {
        crate::validate::parameter_of(&self.entry, symbol)
    }

    fn bind(&mut self, at: Position, name: &str, meaning: Meaning) -> Result<()> {
        let block = self.blocks.last_mut().expect("the outermost blocks are never closed");
        if block.labels.contains_key(name) {
            let found = format!("label `{name}`, which is also a variable");
            return Err(ParseError::new(at, found, "a name that is not taken"));
        }
        if block.names.insert(name.to_owned(), meaning).is_some() {
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
        for index in 0..declaration.len() {
            let register = RegisterId(self.types.len() as u32);
            self.types.push(declaration.ty);
            self.bind(at, &declaration.name_of(index), Meaning::Register(register))?;
        }
        declaration.name = self.fresh(declaration.name.clone(), |name| {
            let renamed = RegisterDeclaration { name: name.to_owned(), ..declaration.clone() };
            (0..renamed.len()).map(|index| renamed.name_of(index)).collect()
        });
        self.entry.registers.push(declaration);
        Ok(())
    }

    /// Declares a variable of the entry.
    pub(super) fn declare_variable(&mut self, at: Position, mut variable: Variable) -> Result<()> {
        let symbol = Symbol::Local(self.entry.variables.len() as u32);
        self.bind(at, &variable.name, Meaning::Symbol(symbol))?;
        variable.name = self.fresh(variable.name.clone(), |name| vec![name.to_owned()]);
        self.entry.variables.push(variable);
        Ok(())
    }

    /// A name for the entry as a whole, and takes it. An inner block may reuse a name, but the
    /// entry has no blocks, so a declaration of the block gets a unique name. `expand` gives all
    /// names of a declaration.
    fn fresh(&mut self, name: String, expand: impl Fn(&str) -> Vec<String>) -> String {
        let mut fresh = name.clone();
        let mut names = expand(&fresh);
        let mut number = 0;
        while names.iter().any(|name| self.taken.contains(name)) {
            number += 1;
            fresh = format!("{name}_{number}_");
            names = expand(&fresh);
        }
        self.taken.extend(names);
        fresh
    }

    /// The label called `name`, which may come later, of the innermost block that has it.
    pub(super) fn label(&mut self, at: Position, name: &str) -> Result<LabelId> {
        let known = self.blocks.iter().rposition(|block| block.labels.contains_key(name));
        let Some(block) = known else {
            let found = format!("label `{name}`, which is not defined");
            return Err(ParseError::new(at, found, "a label of this block or one around it"));
        };
        if let Some(id) = self.blocks[block].labels[name].id {
            return Ok(id);
        }
        let unique = self.fresh(name.to_owned(), |name| vec![name.to_owned()]);
        self.entry.labels.push(unique);
        let id = LabelId(self.entry.labels.len() as u32 - 1);
        if let Some(label) = self.blocks[block].labels.get_mut(name) {
            label.id = Some(id);
        }
        Ok(id)
    }

    /// Places a label.
    pub(super) fn place(&mut self, at: Position, name: &str) -> Result<LabelId> {
        let id = self.label(at, name)?;
        let block = self.blocks.last_mut().and_then(|block| block.labels.get_mut(name));
        if block.is_none_or(|label| std::mem::replace(&mut label.placed, true)) {
            let found = format!("label `{name}` again");
            return Err(ParseError::new(at, found, "a label that is not taken"));
        }
        Ok(id)
    }

    /// Declares a table of labels.
    pub(super) fn declare_table(&mut self, at: Position, table: BranchTable) -> Result<()> {
        let meaning = Meaning::Table(self.entry.tables.len() as u32);
        self.bind(at, &table.name, meaning)?;
        let name = self.fresh(table.name, |name| vec![name.to_owned()]);
        self.entry.tables.push(BranchTable { name, ..table });
        Ok(())
    }

    /// Declares a prototype.
    pub(super) fn declare_prototype(&mut self, at: Position, declared: Prototype) -> Result<()> {
        let meaning = Meaning::Prototype(self.entry.prototypes.len() as u32);
        self.bind(at, &declared.name, meaning)?;
        let name = self.fresh(declared.name, |name| vec![name.to_owned()]);
        self.entry.prototypes.push(Prototype { name, ..declared });
        Ok(())
    }

    /// The entry as it was read.
    pub(super) fn finish(self) -> Entry {
        self.entry
    }
}

/// Names and their numbers.
fn numbered<'a>(
    names: impl Iterator<Item = &'a String>,
    meaning: impl Fn(u32) -> Meaning,
) -> Vec<(String, Meaning)> {
    names.enumerate().map(|(index, name)| (name.clone(), meaning(index as u32))).collect()
}
