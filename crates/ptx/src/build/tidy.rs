//! Final pass over a built kernel, to make it shorter to read and to interpret: drops copies of
//! variables and unused results, and numbers registers by type.

mod copies;
mod numbering;

use copies::{backward_copies, forward_copies};
use numbering::{number_labels, number_registers};

use crate::ast::{Entry, Instruction, Modifier, Opcode, Statement, Type};

/// Tidies `entry`, whose registers have `types`.
pub(super) fn tidy(mut entry: Entry, types: Vec<Type>) -> Entry {
    let count = types.len();
    forward_copies(&mut entry.body, count);
    backward_copies(&mut entry.body, count);
    drop_unused(&mut entry.body, count);
    number_registers(&mut entry, &types);
    number_labels(&mut entry);
    entry
}

/// Keeps the statements at positions for which `keep` is true.
fn keep_where(body: &mut Vec<Statement>, mut keep: impl FnMut(usize) -> bool) {
    let mut position = 0;
    body.retain(|_| {
        position += 1;
        keep(position - 1)
    });
}

/// Whether the instruction has no effect other than its destination.
fn is_pure(instruction: &Instruction) -> bool {
    use Opcode::{Atom, Elect, Ldmatrix, Mbarrier, Mma, Movmatrix, Shfl, Vote, Wmma};
    let acts = matches!(
        instruction.opcode,
        Atom | Elect | Shfl | Vote | Ldmatrix | Mbarrier | Movmatrix | Mma | Wmma
    );
    instruction.has_destination() && !acts && !instruction.modifiers.has(Modifier::Volatile)
}

/// Drops instructions whose results are not read.
fn drop_unused(body: &mut Vec<Statement>, count: usize) {
    loop {
        let mut reads = vec![0usize; count];
        for statement in body.iter() {
            let Statement::Instruction(instruction) = statement else { continue };
            instruction.visit_registers(|register, read| {
                reads[register.0 as usize] += usize::from(read);
            });
        }
        let before = body.len();
        // Backwards, to drop a chain of unused results in one sweep.
        let mut keep = vec![true; before];
        for position in (0..before).rev() {
            let Statement::Instruction(instruction) = &body[position] else { continue };
            let mut used = !is_pure(instruction);
            instruction.visit_registers(|register, read| {
                used |= !read && reads[register.0 as usize] > 0;
            });
            if !used {
                keep[position] = false;
                instruction.visit_registers(|register, read| {
                    reads[register.0 as usize] -= usize::from(read);
                });
            }
        }
        keep_where(body, |position| keep[position]);
        if body.len() == before {
            return;
        }
    }
}
