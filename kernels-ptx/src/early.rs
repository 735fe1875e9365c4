//! Starting before the kernel in front has ended.
//!
//! From sm_90 on, a kernel can be placed on the device while the one in front of it drains, if the
//! graph or the launch asks for that (programmatic dependent launch). Its threads must then wait by
//! themselves until everything in front is complete and visible: `griddepcontrol.wait`, which does
//! nothing in a kernel that was launched in the ordinary way. Every entry begins with it, in front
//! of every access and every return, but for those that call [`wait`] themselves: they may load in
//! front of it what their launch declares as read ahead, and nothing else.
//!
//! Such a kernel gains from starting while the one in front still works, which
//! [`let_next_start`] allows. Others do not call it: what waits on the device takes the room of
//! what works.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Instruction, Modifier, Modifiers, Module, SourceLine, Statement};
use retrograph_ptx::build::Kernel;
use retrograph_ptx::instructions::Opcode;

/// Whether kernels for `target` can start early.
pub(crate) fn starts_early(target: SmTarget) -> bool {
    target.features().pdl
}

/// Lets the next kernel start, where the target can.
pub(crate) fn let_next_start(k: &Kernel<'_>, target: SmTarget) {
    if starts_early(target) {
        k.let_next_start();
    }
}

/// Waits for what is in front, where the target can. Every thread must come here, in front of what
/// it stores and of its end.
pub(crate) fn wait(k: &Kernel<'_>, target: SmTarget) {
    if starts_early(target) {
        k.wait_for_kernels_in_front();
    }
}

/// Makes every entry of `module` wait first that does not wait by itself, where the target can.
pub(crate) fn wait_first(mut module: Module) -> Module {
    if starts_early(module.target) {
        for entry in &mut module.entries {
            if !entry.body.iter().any(is_wait) {
                entry.body.insert(0, Statement::Instruction(waiting()));
            }
        }
    }
    module
}

fn is_wait(statement: &Statement) -> bool {
    let Statement::Instruction(instruction) = statement else { return false };
    instruction.opcode == Opcode::Griddepcontrol && instruction.modifiers.has(Modifier::Wait)
}

fn waiting() -> Instruction {
    Instruction {
        guard: None,
        opcode: Opcode::Griddepcontrol,
        modifiers: Modifiers::of(&[Modifier::Wait]),
        types: Vec::new(),
        operands: Vec::new(),
        line: SourceLine::default(),
    }
}
