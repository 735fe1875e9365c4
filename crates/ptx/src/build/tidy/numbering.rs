//! Numbers of registers and labels.

use crate::ast::{Entry, LabelId, Operand, RegisterDeclaration, RegisterId, Statement, Type};

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

/// Numbers the registers by file, in order of appearance.
pub(super) fn number_registers(entry: &mut Entry, types: &[Type]) {
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

/// Numbers the labels in order of first appearance, like the parser.
pub(super) fn number_labels(entry: &mut Entry) {
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
