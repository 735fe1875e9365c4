//! Positions and texts of instructions, for messages.

use retrograph_ptx::ast::{Entry, Instruction, Module, Statement};

use super::fault::FaultSite;
use super::grid::{Launch, coordinates};
use super::program::Program;

/// The position of an instruction, by the linear indices of block and thread.
pub(super) fn site_of(
    program: &Program,
    launch: &Launch<'_>,
    block: [u32; 3],
    thread: u32,
    pc: u32,
) -> FaultSite {
    let site = program.sites.get(pc as usize).copied().unwrap_or_default();
    let (entry, statement) = (program.code_of(site), site.statement as usize);
    let instruction = match entry.body.get(statement) {
        Some(Statement::Instruction(instruction)) => Some(instruction),
        _ => None,
    };
    let line = instruction.map_or(0, |instruction| instruction.line.0);
    FaultSite {
        kernel: program.name().to_owned(),
        block,
        thread: coordinates(u64::from(thread), launch.block),
        statement,
        line,
        source: program.module.lines.source(line),
        text: instruction.map_or_else(String::new, |i| text_of(&program.module, entry, i)),
    }
}

/// The instruction as PTX, with the names of the entry and the module.
pub(super) fn text_of(module: &Module, entry: &Entry, instruction: &Instruction) -> String {
    // The printer prints whole modules, so this creates a module with only this instruction.
    let entry = Entry {
        name: entry.name.clone(),
        parameters: entry.parameters.clone(),
        limits: entry.limits,
        registers: entry.registers.clone(),
        variables: entry.variables.clone(),
        labels: entry.labels.clone(),
        results: entry.results.clone(),
        tables: entry.tables.clone(),
        prototypes: entry.prototypes.clone(),
        body: vec![Statement::Instruction(instruction.clone())],
    };
    let module = Module {
        isa: module.isa,
        target: module.target,
        variables: module.variables.clone(),
        functions: module.functions.clone(),
        entries: vec![entry],
        lines: Default::default(),
    };
    let text = module.to_string();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty() && *line != "}");
    let words = line.unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}
