//! Starting before the kernel in front has ended.
//!
//! From sm_90 on, a kernel can be placed on the device while the one in front of it drains, if the
//! graph or the launch asks for that (programmatic dependent launch). Its threads must then wait by
//! themselves until everything in front is complete and visible: `griddepcontrol.wait`, which does
//! nothing in a kernel that was launched in the ordinary way. Every entry begins with it, in front
//! of every access and every return.
//!
//! Absent on purpose: `griddepcontrol.launch_dependents`, by which a kernel lets the next one in
//! while it works itself. What waits on the device takes the room of what works.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Instruction, Modifier, Modifiers, Module, SourceLine, Statement};
use retrograph_ptx::instructions::Opcode;

/// The first target with the instruction.
const FIRST: SmTarget = SmTarget::portable(90);

/// Makes every entry of `module` wait first, where the target can.
pub(crate) fn wait_first(mut module: Module) -> Module {
    if module.target.number >= FIRST.number {
        for entry in &mut module.entries {
            entry.body.insert(0, Statement::Instruction(wait()));
        }
    }
    module
}

fn wait() -> Instruction {
    Instruction {
        guard: None,
        opcode: Opcode::Griddepcontrol,
        modifiers: Modifiers::of(&[Modifier::Wait]),
        types: Vec::new(),
        operands: Vec::new(),
        line: SourceLine::default(),
    }
}
