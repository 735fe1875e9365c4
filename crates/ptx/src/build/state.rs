//! The state of a kernel under construction.

use std::collections::BTreeMap;

use super::tidy;
use crate::ast::{
    Entry, Guard, Instruction, Modifier, Modifiers, Opcode, Operand, RegisterId, SourceLine,
    SpecialRegister, Statement, Symbol, Type,
};

/// The entry so far, and the builder's tables.
#[derive(Default)]
pub(super) struct State {
    pub(super) entry: Entry,
    /// Loads of parameters and special registers. They precede the body, so any scope may use
    /// them.
    pub(super) prologue: Vec<Statement>,
    /// Type and scope of every register.
    pub(super) registers: Vec<(Type, u32)>,
    /// Open scopes, outermost first.
    pub(super) open: Vec<u32>,
    pub(super) scopes: u32,
    pub(super) specials: BTreeMap<SpecialRegister, RegisterId>,
    /// Variables and the registers that hold their addresses.
    pub(super) addresses: Vec<(Symbol, RegisterId)>,
    pub(super) blocks: u32,
}

/// The parts of an instruction.
pub(super) struct Emit<'a> {
    pub(super) opcode: Opcode,
    pub(super) modifiers: &'a [Modifier],
    pub(super) types: &'a [Type],
    pub(super) operands: Vec<Operand>,
}

impl Emit<'_> {
    /// The statement, under `guard`.
    pub(super) fn statement(self, guard: Option<Guard>) -> Statement {
        Statement::Instruction(Instruction {
            guard,
            opcode: self.opcode,
            modifiers: Modifiers::of(self.modifiers),
            types: self.types.to_vec(),
            operands: self.operands,
            line: SourceLine::default(),
        })
    }
}

impl State {
    /// Appends an instruction to the prologue.
    pub(super) fn push_prologue(&mut self, emit: Emit<'_>) {
        self.prologue.push(emit.statement(None));
    }

    /// Panics if `name` is already declared.
    pub(super) fn claim(&self, name: &str) {
        let parameters = self.entry.parameters.iter().map(|parameter| &parameter.name);
        let mut names = parameters.chain(self.entry.variables.iter().map(|v| &v.name));
        let entry = &self.entry.name;
        assert!(names.all(|taken| taken != name), "kernel `{entry}`: `{name}` is declared twice");
    }

    /// The entry with its final `ret`, tidied.
    pub(super) fn finish(mut self) -> Entry {
        let mut body = self.prologue;
        body.append(&mut self.entry.body);
        let end = Emit { opcode: Opcode::Ret, modifiers: &[], types: &[], operands: Vec::new() };
        body.push(end.statement(None));
        let types = self.registers.iter().map(|&(ty, _)| ty).collect();
        self.entry.body = body;
        tidy::tidy(self.entry, types)
    }
}
