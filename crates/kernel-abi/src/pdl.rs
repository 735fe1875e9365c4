//! Programmatic dependent launch (PDL): which images support it.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Instruction, Modifier, Modifiers, Module, SourceLine, Statement};
use retrograph_ptx::instructions::Opcode;

/// Whether images for `target` support PDL: every thread executes `griddepcontrol.wait` before all
/// accesses except [`Access::ReadBeforeWait`].
///
/// [`Access::ReadBeforeWait`]: crate::Access::ReadBeforeWait
pub fn is_supported(target: SmTarget) -> bool {
    target.features().pdl
}

/// Inserts a wait at the start of every entry of `module` that has none, if the target has PDL.
pub fn insert_waits(mut module: Module) -> Module {
    if is_supported(module.target) {
        for entry in &mut module.entries {
            if !entry.body.iter().any(is_wait) {
                entry.body.insert(0, Statement::Instruction(wait_instruction()));
            }
        }
    }
    module
}

fn is_wait(statement: &Statement) -> bool {
    let Statement::Instruction(instruction) = statement else { return false };
    instruction.opcode == Opcode::Griddepcontrol && instruction.modifiers.has(Modifier::Wait)
}

fn wait_instruction() -> Instruction {
    Instruction {
        guard: None,
        opcode: Opcode::Griddepcontrol,
        modifiers: Modifiers::of(&[Modifier::Wait]),
        types: Vec::new(),
        operands: Vec::new(),
        line: SourceLine::default(),
    }
}
