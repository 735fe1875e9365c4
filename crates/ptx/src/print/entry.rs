//! Entries as text.

use std::fmt::{self, Formatter, Write};

use super::mnemonic;
use crate::ast::{
    Address, AddressBase, Entry, Instruction, Module, Operand, RegisterId, Statement, Symbol,
    Variable,
};

/// The column where operands start.
const OPERAND_COLUMN: usize = 24;

/// Prints one entry and resolves indices to names.
pub(super) struct EntryPrinter<'a> {
    module: &'a Module,
    entry: &'a Entry,
    registers: Vec<String>,
}

impl<'a> EntryPrinter<'a> {
    pub(super) fn new(module: &'a Module, entry: &'a Entry) -> Self {
        let declared = entry.registers.iter();
        let names = declared.flat_map(|d| (0..d.len()).map(|index| d.name_of(index)));
        Self { module, entry, registers: names.collect() }
    }

    pub(super) fn print(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let entry = self.entry;
        write!(f, ".visible .entry {}(", entry.name)?;
        for (index, parameter) in entry.parameters.iter().enumerate() {
            write!(f, "{}\n    {parameter}", if index > 0 { "," } else { "" })?;
        }
        writeln!(f, "{})", if entry.parameters.is_empty() { "" } else { "\n" })?;
        self.print_body(f)
    }

    /// Limits and body.
    pub(super) fn print_body(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let entry = self.entry;
        writeln!(f, "{}{{", entry.limits)?;
        for declaration in &entry.registers {
            write!(f, "    .reg .{} {}", declaration.ty, declaration.name)?;
            match declaration.count {
                Some(count) => writeln!(f, "<{count}>;")?,
                None => writeln!(f, ";")?,
            }
        }
        for variable in &entry.variables {
            writeln!(f, "    {variable}")?;
        }
        for table in &entry.tables {
            let labels: Vec<&str> = table.labels.iter().map(|l| name(entry.label(*l))).collect();
            writeln!(f, "    {}: .branchtargets {};", table.name, labels.join(", "))?;
        }
        for prototype in &entry.prototypes {
            writeln!(f, "    {prototype}")?;
        }
        if !entry.registers.is_empty() || !entry.variables.is_empty() {
            f.write_char('\n')?;
        }
        entry.body.iter().try_for_each(|statement| self.statement(f, statement))?;
        f.write_str("}\n")
    }

    fn statement(&self, f: &mut Formatter<'_>, statement: &Statement) -> fmt::Result {
        match statement {
            Statement::Label(label) => writeln!(f, "{}:", name(self.entry.label(*label))),
            Statement::Instruction(instruction) => self.instruction(f, instruction),
        }
    }

    fn instruction(&self, f: &mut Formatter<'_>, instruction: &Instruction) -> fmt::Result {
        let mut text = String::from("    ");
        if let Some(guard) = instruction.guard {
            let not = if guard.negated { "!" } else { "" };
            write!(text, "@{not}{} ", self.register(guard.predicate.0))?;
        }
        text.push_str(&mnemonic(instruction));
        for (index, operand) in instruction.operands.iter().enumerate() {
            if index == 0 {
                let width = text.len().max(OPERAND_COLUMN - 1) + 1;
                text = format!("{text:width$}");
            } else {
                text.push_str(", ");
            }
            self.operand(&mut text, operand)?;
        }
        writeln!(f, "{text};")
    }

    fn operand(&self, text: &mut String, operand: &Operand) -> fmt::Result {
        match operand {
            Operand::Register(register) => text.push_str(self.register(register.0)),
            Operand::NotPredicate(register) => write!(text, "!{}", self.register(register.0))?,
            Operand::Pair(first, second) => {
                let name = |id: &Option<RegisterId>| id.map_or("_", |id| self.register(id.0));
                write!(text, "{}|{}", name(first), name(second))?;
            }
            Operand::Special(special) => text.push_str(special.text()),
            Operand::Immediate(immediate) => write!(text, "{immediate}")?,
            Operand::Symbol(symbol, offset) => {
                text.push_str(self.symbol(*symbol));
                plus(text, *offset)?;
            }
            Operand::Address(address) => self.address(text, address)?,
            Operand::TensorCoordinates(map, coordinates) => {
                write!(text, "[{}, ", self.register(map.0))?;
                self.list(text, coordinates, ['{', '}'])?;
                text.push(']');
            }
            Operand::Vector(operands) => self.list(text, operands, ['{', '}'])?,
            Operand::List(operands) => self.list(text, operands, ['(', ')'])?,
            Operand::Targets(table) => {
                let table = self.entry.tables.get(*table as usize);
                text.push_str(name(table.map(|table| table.name.as_str())));
            }
            Operand::Prototype(index) => {
                let prototype = self.entry.prototypes.get(*index as usize);
                text.push_str(name(prototype.map(|prototype| prototype.name.as_str())));
            }
            Operand::Function(function) => {
                let function = self.module.functions.get(*function as usize);
                text.push_str(name(function.map(|function| function.code.name.as_str())));
            }
            Operand::Label(label) => text.push_str(name(self.entry.label(*label))),
            Operand::Sink => text.push('_'),
        }
        Ok(())
    }

    fn list(&self, text: &mut String, list: &[Operand], [open, close]: [char; 2]) -> fmt::Result {
        text.push(open);
        for (index, operand) in list.iter().enumerate() {
            text.push_str(if index > 0 { ", " } else { "" });
            self.operand(text, operand)?;
        }
        text.push(close);
        Ok(())
    }

    fn address(&self, text: &mut String, address: &Address) -> fmt::Result {
        text.push('[');
        match address.base {
            AddressBase::Register(register) => text.push_str(self.register(register.0)),
            AddressBase::Symbol(symbol) => text.push_str(self.symbol(symbol)),
            AddressBase::Absolute => {
                return write!(text, "{}]", address.offset);
            }
        }
        plus(text, address.offset)?;
        text.push(']');
        Ok(())
    }

    fn register(&self, index: u32) -> &str {
        name(self.registers.get(index as usize).map(String::as_str))
    }

    fn symbol(&self, symbol: Symbol) -> &str {
        let variable = |list: &'a [Variable], index: u32| {
            list.get(index as usize).map(|variable| variable.name.as_str())
        };
        name(match symbol {
            Symbol::Parameter(index) => {
                self.entry.parameters.get(index as usize).map(|p| p.name.as_str())
            }
            Symbol::Result(index) => {
                self.entry.results.get(index as usize).map(|p| p.name.as_str())
            }
            Symbol::Local(index) => variable(&self.entry.variables, index),
            Symbol::Module(index) => variable(&self.module.variables, index),
        })
    }
}

/// `+offset`, or nothing for 0. A negative offset is written `+-4`, because `ptxas` does not accept
/// `-4` here.
fn plus(text: &mut String, offset: i64) -> fmt::Result {
    match offset {
        0 => Ok(()),
        _ => write!(text, "+{offset}"),
    }
}

/// The text for an index without an item; not a valid name.
fn name(known: Option<&str>) -> &str {
    known.unwrap_or("<undeclared>")
}
