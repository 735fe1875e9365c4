//! Last steps on a built kernel, for those who read it and for those who interpret it: copies of
//! variables are dropped, results that nobody uses too, and registers are numbered by type.

use crate::ast::{
    Entry, Instruction, LabelId, Modifier, Opcode, Operand, RegisterDeclaration, RegisterId,
    Statement, Type,
};

/// Tidies `entry`, whose registers have `types`.
pub(super) fn tidy(mut entry: Entry, types: Vec<Type>) -> Entry {
    let count = types.len();
    forward_copies(&mut entry.body, count);
    backward_copies(&mut entry.body, count);
    drop_unused(&mut entry.body, count);
    number(&mut entry, &types);
    number_labels(&mut entry);
    entry
}

/// Where each register is read and written: positions of statements in rising order.
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

/// Whether `list`, which rises, has an element strictly between the bounds.
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

/// Positions that satisfy `test`, in rising order.
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

fn keep_where(body: &mut Vec<Statement>, mut keep: impl FnMut(usize) -> bool) {
    let mut position = 0;
    body.retain(|_| {
        position += 1;
        keep(position - 1)
    });
}

/// Reads the variable itself where its copy was read, as long as it has not changed by then.
fn forward_copies(body: &mut Vec<Statement>, count: usize) {
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
            // The variable may be a copy itself that is dropped for another.
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

/// Writes the variable where the value that it is set to was computed, when that value has no other
/// use and the variable is not touched in between.
fn backward_copies(body: &mut Vec<Statement>, count: usize) {
    let mut positions = Positions::of(body, count);
    let barriers = positions_where(body, is_label_or_branch);
    let mut gone = vec![false; body.len()];
    for position in 0..body.len() {
        let Some((variable, value)) = as_copy(&body[position]) else { continue };
        let (&[computed], &[_]) = (positions.writes(value), positions.reads(value)) else {
            continue;
        };
        let touched = any_between(positions.reads(variable), computed, position)
            || any_between(positions.writes(variable), computed, position)
            || positions.writes(variable).contains(&computed);
        if computed >= position || touched || any_between(&barriers, computed, position) {
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

/// Whether the instruction does nothing but compute its destination.
fn is_pure(instruction: &Instruction) -> bool {
    let acts = matches!(instruction.opcode, Opcode::Atom | Opcode::Shfl | Opcode::Vote);
    instruction.opcode.has_destination() && !acts && !instruction.modifiers.has(Modifier::Volatile)
}

/// Drops what computes only results that nobody reads.
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
        // Backwards, so that a chain of unused results goes in one sweep.
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

/// The register files, in the order of declaration: name and type.
const FILES: [(&str, Type); 5] = [
    ("%p", Type::Pred),
    ("%f", Type::F32),
    ("%fd", Type::F64),
    ("%r", Type::B32),
    ("%rd", Type::B64),
];

fn file_of(ty: Type) -> usize {
    match ty {
        Type::Pred => 0,
        Type::F32 => 1,
        Type::F64 => 2,
        _ if ty.size() == 8 => 4,
        _ => 3,
    }
}

/// Numbers the registers by file, in the order in which they appear.
fn number(entry: &mut Entry, types: &[Type]) {
    let mut numbers: Vec<Option<u32>> = vec![None; types.len()];
    let mut counts = [0u32; FILES.len()];
    for statement in &entry.body {
        let Statement::Instruction(instruction) = statement else { continue };
        instruction.visit_registers(|register, _| {
            let number = &mut numbers[register.0 as usize];
            let count = &mut counts[file_of(types[register.0 as usize])];
            *count += u32::from(number.is_none());
            number.get_or_insert(*count - 1);
        });
    }
    let mut start = [0u32; FILES.len()];
    for file in 1..FILES.len() {
        start[file] = start[file - 1] + counts[file - 1];
    }
    for statement in &mut entry.body {
        let Statement::Instruction(instruction) = statement else { continue };
        instruction.visit_registers_mut(|register, _| {
            let index = register.0 as usize;
            let number = numbers[index].expect("every register was numbered above");
            *register = RegisterId(start[file_of(types[index])] + number);
        });
    }
    let files = FILES.iter().zip(counts).filter(|&(_, count)| count > 0);
    let declare = |(&(name, ty), count): (&(&str, Type), u32)| RegisterDeclaration {
        name: name.to_owned(),
        ty,
        count: Some(count),
    };
    entry.registers = files.map(declare).collect();
}

/// Numbers the labels in the order in which they are named first, which is how the parser does it.
fn number_labels(entry: &mut Entry) {
    let mut numbers: Vec<Option<u32>> = vec![None; entry.labels.len()];
    let mut names = Vec::new();
    let mut renumber = |label: &mut LabelId| {
        let index = label.0 as usize;
        let number = *numbers[index].get_or_insert_with(|| {
            names.push(std::mem::take(&mut entry.labels[index]));
            names.len() as u32 - 1
        });
        *label = LabelId(number);
    };
    for statement in &mut entry.body {
        match statement {
            Statement::Label(label) => renumber(label),
            Statement::Instruction(instruction) => {
                for operand in &mut instruction.operands {
                    if let Operand::Label(label) = operand {
                        renumber(label);
                    }
                }
            }
        }
    }
    entry.labels = names;
}
