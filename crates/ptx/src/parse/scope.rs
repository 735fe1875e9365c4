//! The names that are in sight, and the entry that is being read.

use std::collections::{HashMap, HashSet};

use super::lexer::Position;
use super::{ParseError, Result};
use crate::ast::{
    Entry, LabelId, Module, RegisterDeclaration, RegisterId, Space, Symbol, Type, Variable,
};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Register(RegisterId),
    Symbol(Symbol),
}

/// An entry while it is being read.
pub(super) struct Scope<'m> {
    pub(super) module: &'m Module,
    pub(super) entry: Entry,
    /// The types of the registers so far.
    pub(super) types: Vec<Type>,
    /// The names of each open block, outermost first.
    blocks: Vec<HashMap<String, Meaning>>,
    labels: HashMap<String, (LabelId, Label)>,
    /// Every name of the entry so far, open block or not.
    taken: HashSet<String>,
}

/// Where a label was first named, and whether it has been placed.
#[derive(Clone, Copy)]
struct Label {
    named: Position,
    placed: bool,
}

impl<'m> Scope<'m> {
    /// The scope of `entry`, whose parameters are known.
    pub(super) fn new(module: &'m Module, entry: Entry) -> Self {
        let variables = module.variables.iter().enumerate();
        let variables = variables
            .map(|(index, v)| (v.name.clone(), Meaning::Symbol(Symbol::Module(index as u32))));
        let outer = variables.collect();
        let parameters = entry.parameters.iter().enumerate();
        let parameters = parameters
            .map(|(index, p)| (p.name.clone(), Meaning::Symbol(Symbol::Parameter(index as u32))));
        let inner = parameters.collect();
        let blocks: Vec<HashMap<String, Meaning>> = vec![outer, inner];
        let taken = blocks.iter().flat_map(HashMap::keys).cloned().collect();
        let (types, labels) = (Vec::new(), HashMap::new());
        Self { module, entry, types, blocks, labels, taken }
    }

    /// Opens a block, `{`.
    pub(super) fn open(&mut self) {
        self.blocks.push(HashMap::new());
    }

    /// Closes a block, `}`. False when none is open.
    pub(super) fn close(&mut self) -> bool {
        // The first two are the module and the entry.
        let open = self.blocks.len() > 2;
        if open {
            self.blocks.pop();
        }
        open
    }

    /// What `name` stands for.
    pub(super) fn find(&self, name: &str) -> Option<Meaning> {
        self.blocks.iter().rev().find_map(|block| block.get(name)).copied()
    }

    /// The space of a symbol.
    pub(super) fn space(&self, symbol: Symbol) -> Option<Space> {
        crate::validate::space_of(self.module, &self.entry, symbol)
    }

    fn bind(&mut self, at: Position, name: &str, meaning: Meaning) -> Result<()> {
        let block = self.blocks.last_mut().expect("the outermost blocks are never closed");
        if block.insert(name.to_owned(), meaning).is_some() {
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
    /// entry has no blocks, and so what the block declares gets a name of its own. `expand` gives
    /// all the names that a declaration makes.
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

    /// The label called `name`, which may come later.
    pub(super) fn label(&mut self, at: Position, name: &str) -> LabelId {
        let labels = &mut self.entry.labels;
        let known = self.labels.entry(name.to_owned()).or_insert_with(|| {
            labels.push(name.to_owned());
            (LabelId(labels.len() as u32 - 1), Label { named: at, placed: false })
        });
        known.0
    }

    /// Places a label.
    pub(super) fn place(&mut self, at: Position, name: &str) -> Result<LabelId> {
        let id = self.label(at, name);
        if let Some((_, label)) = self.labels.get_mut(name)
            && std::mem::replace(&mut label.placed, true)
        {
            let found = format!("label `{name}` again");
            return Err(ParseError::new(at, found, "a label that is not taken"));
        }
        Ok(id)
    }

    /// The entry, when every label has its place.
    pub(super) fn finish(self) -> Result<Entry> {
        let missing = self.labels.iter().filter(|(_, (_, label))| !label.placed);
        // The first one in the text, so that the message does not depend on hashing.
        let first = missing.min_by_key(|(_, (_, label))| (label.named.line, label.named.column));
        if let Some(name) = self.entry.labels.iter().find(|name| self.taken.contains(*name)) {
            let (_, label) = self.labels[name];
            let found = format!("label `{name}`, which is also a variable");
            return Err(ParseError::new(label.named, found, "a name that is not taken"));
        }
        match first {
            None => Ok(self.entry),
            Some((name, (_, label))) => {
                let found = format!("label `{name}`, which stands nowhere");
                Err(ParseError::new(label.named, found, "a label of this entry"))
            }
        }
    }
}
