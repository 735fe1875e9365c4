//! Copies between variables and values.

use super::keep_where;
use crate::ast::{Opcode, Operand, RegisterId, Statement, Type};

/// Positions of the statements that read and write each register, ascending.
struct Positions {
    reads: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
}

impl Positions {
    fn of(body: &[Statement], count: usize) -> Self {
        let (mut reads, mut writes) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (position, statement) in body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            instruction.visit_registers(|register, read| {
                let list = if read { &mut reads } else { &mut writes };
                list[register.0 as usize].push(position);
            });
        }
        Self { reads, writes }
    }

    fn reads(&self, register: RegisterId) -> &[usize] {
        &self.reads[register.0 as usize]
    }

    fn writes(&self, register: RegisterId) -> &[usize] {
        &self.writes[register.0 as usize]
    }
}

/// Whether the ascending `list` has an element strictly between the bounds.
fn any_between(list: &[usize], low: usize, high: usize) -> bool {
    let after = list.partition_point(|&position| position <= low);
    list.get(after).is_some_and(|&position| position < high)
}

/// Destination and source, if the statement copies one register to another.
fn as_copy(statement: &Statement) -> Option<(RegisterId, RegisterId)> {
    let Statement::Instruction(instruction) = statement else { return None };
    // A move between types, `mov.b32 %r0, %f0`, changes how the bits are read.
    let untyped = matches!(instruction.ty(), Some(Type::B32 | Type::B64));
    if instruction.opcode != Opcode::Mov || instruction.guard.is_some() || untyped {
        return None;
    }
    match instruction.operands[..] {
        [Operand::Register(to), Operand::Register(from)] => Some((to, from)),
        _ => None,
    }
}

fn rename(statement: &mut Statement, from: RegisterId, to: RegisterId, reads: bool) {
    if let Statement::Instruction(instruction) = statement {
        instruction.visit_registers_mut(|register, read| {
            if *register == from && read == reads {
                *register = to;
            }
        });
    }
}

/// Positions of the statements that satisfy `test`, ascending.
fn positions_where(body: &[Statement], test: impl Fn(&Statement) -> bool) -> Vec<usize> {
    let all = body.iter().enumerate();
    all.filter(|(_, statement)| test(statement)).map(|(position, _)| position).collect()
}

fn is_label(statement: &Statement) -> bool {
    matches!(statement, Statement::Label(_))
}

fn is_label_or_branch(statement: &Statement) -> bool {
    match statement {
        Statement::Label(_) => true,
        Statement::Instruction(instruction) => instruction.opcode == Opcode::Bra,
    }
}

/// Replaces reads of a copy by reads of the variable, if the variable does not change in between.
pub(super) fn forward_copies(body: &mut Vec<Statement>, count: usize) {
    let positions = Positions::of(body, count);
    let labels = positions_where(body, is_label);
    let mut renamed: Vec<Option<RegisterId>> = vec![None; count];
    let mut gone = vec![false; body.len()];
    for position in 0..body.len() {
        let Some((copy, variable)) = as_copy(&body[position]) else { continue };
        let reads = positions.reads(copy);
        let (Some(&first), Some(&last)) = (reads.first(), reads.last()) else { continue };
        let straight = first > position && !any_between(&labels, position, last);
        let unchanged = !any_between(positions.writes(variable), position, last);
        if positions.writes(copy).len() == 1 && straight && unchanged {
            // The variable may itself be a copy that was replaced.
            let variable = renamed[variable.0 as usize].unwrap_or(variable);
            if any_between(positions.writes(variable), position, last) {
                continue;
            }
            renamed[copy.0 as usize] = Some(variable);
            gone[position] = true;
            for &read in reads {
                rename(&mut body[read], copy, variable, true);
            }
        }
    }
    keep_where(body, |position| !gone[position]);
}

/// Writes the variable directly where its new value is computed, if that value has no other use
/// and the variable is not accessed in between.
pub(super) fn backward_copies(body: &mut Vec<Statement>, count: usize) {
    let mut positions = Positions::of(body, count);
    let barriers = positions_where(body, is_label_or_branch);
    let mut gone = vec![false; body.len()];
    for position in 0..body.len() {
        let Some((variable, value)) = as_copy(&body[position]) else { continue };
        let (&[computed], &[_]) = (positions.writes(value), positions.reads(value)) else {
            continue;
        };
        let accessed = any_between(positions.reads(variable), computed, position)
            || any_between(positions.writes(variable), computed, position)
            || positions.writes(variable).contains(&computed);
        if computed >= position || accessed || any_between(&barriers, computed, position) {
            continue;
        }
        rename(&mut body[computed], value, variable, false);
        gone[position] = true;
        let writes = &mut positions.writes[variable.0 as usize];
        writes.retain(|&write| write != position);
        writes.insert(writes.partition_point(|&write| write < computed), computed);
        positions.writes[value.0 as usize].clear();
    }
    keep_where(body, |position| !gone[position]);
}
