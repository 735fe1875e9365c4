//! Instructions as text, for messages.

use retrograph_ptx::ast::{Entry, Instruction, Module, Statement};

/// The instruction as PTX, with the names of the entry and the module.
pub(super) fn text_of(module: &Module, entry: &Entry, instruction: &Instruction) -> String {
    // The printer prints modules, so one is made whose only instruction is this one.
    let entry = Entry {
        name: entry.name.clone(),
        parameters: entry.parameters.clone(),
        limits: entry.limits,
        registers: entry.registers.clone(),
        variables: entry.variables.clone(),
        labels: entry.labels.clone(),
        results: entry.results.clone(),
        tables: entry.tables.clone(),
        body: vec![Statement::Instruction(instruction.clone())],
    };
    let module = Module {
        isa: module.isa,
        target: module.target,
        variables: module.variables.clone(),
        functions: module.functions.clone(),
        entries: vec![entry],
    };
    let text = module.to_string();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty() && *line != "}");
    let words = line.unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}
