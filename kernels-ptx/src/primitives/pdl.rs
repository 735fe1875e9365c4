//! Programmatic dependent launch (PDL).
//!
//! From sm_90 on, a kernel may be launched while its predecessor still drains. Its threads must
//! then execute `griddepcontrol.wait` before they access memory that the predecessor writes; in an
//! ordinary launch the instruction does nothing. [`insert_waits`] puts it at the start of every
//! entry, except entries that call [`wait`] themselves in order to prefetch operands that no
//! earlier launch writes.
//!
//! A kernel that calls [`launch_dependents`] lets its successor start at once. Only successors that
//! prefetch gain from this; others would occupy the SM while they wait.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Instruction, Modifier, Modifiers, Module, SourceLine, Statement};
use retrograph_ptx::build::Kernel;
use retrograph_ptx::instructions::Opcode;

/// Lets the next kernel start (`griddepcontrol.launch_dependents`), if the target has PDL.
pub(crate) fn launch_dependents(k: &Kernel<'_>, target: SmTarget) {
    if target.features().pdl {
        k.griddepcontrol_launch_dependents();
    }
}

/// Waits until all preceding kernels are complete and their writes visible
/// (`griddepcontrol.wait`), if the target has PDL.
///
/// Every thread must execute it before its first store and before it returns.
pub(crate) fn wait(k: &Kernel<'_>, target: SmTarget) {
    if target.features().pdl {
        k.griddepcontrol_wait();
    }
}

/// Inserts a wait at the start of every entry of `module` that has none, if the target has PDL.
pub(crate) fn insert_waits(mut module: Module) -> Module {
    if module.target.features().pdl {
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
