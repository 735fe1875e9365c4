//! Programmatic dependent launch: before `griddepcontrol.wait`, kernels access only memory that
//! they declare as read before the wait.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use retrograph_kernels::{SmTarget, images};
use retrograph_ptx::ast::{
    AddressBase, Entry, Instruction, LabelId, Modifier, Operand, RegisterId, Statement, Symbol,
    Type,
};
use retrograph_ptx::instructions::Opcode;
use retrograph_ptx::parse;

/// Whether the launches of an image declare the pointer as read before the wait. Other tests check
/// that they do.
fn is_read_before_wait(image: &str, parameter: &str) -> bool {
    let numbered = |letter: &str| {
        parameter.strip_prefix(letter).is_some_and(|rest| rest.starts_with(['0', '1', '2']))
    };
    match image {
        "gemm_skinny" => numbered("w"),
        _ => image.starts_with("gemv") && (numbered("w") || numbered("a")),
    }
}

/// The registers and parameters in an operand.
fn parts(operand: &Operand, registers: &mut Vec<RegisterId>, parameters: &mut Vec<u32>) {
    match operand {
        Operand::Register(register) | Operand::NotPredicate(register) => registers.push(*register),
        Operand::Pair(one, other) => registers.extend(one.iter().chain(other)),
        Operand::Address(address) => match address.base {
            AddressBase::Register(register) => registers.push(register),
            AddressBase::Symbol(Symbol::Parameter(number)) => parameters.push(number),
            _ => {}
        },
        Operand::Vector(operands) | Operand::List(operands) => {
            operands.iter().for_each(|operand| parts(operand, registers, parameters));
        }
        _ => {}
    }
}

/// Returns for each register the pointer parameters that its value can come from, ignoring the
/// order of instructions.
fn origins(entry: &Entry) -> BTreeMap<RegisterId, BTreeSet<u32>> {
    let mut origins: BTreeMap<RegisterId, BTreeSet<u32>> = BTreeMap::new();
    loop {
        let mut changed = false;
        for instruction in entry.body.iter().filter_map(instruction) {
            let Some((to, from)) = instruction.operands.split_first() else { continue };
            if matches!(instruction.opcode, Opcode::St | Opcode::Bra) {
                continue;
            }
            let (mut results, mut registers, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
            parts(to, &mut results, &mut Vec::new());
            from.iter().for_each(|operand| parts(operand, &mut registers, &mut parameters));
            parameters.retain(|at| entry.parameters[*at as usize].ty == Type::U64);
            let mut found: BTreeSet<u32> = parameters.into_iter().collect();
            for register in registers {
                found.extend(origins.get(&register).into_iter().flatten());
            }
            for result in results {
                let held = origins.entry(result).or_default();
                let before = held.len();
                held.extend(&found);
                changed |= held.len() > before;
            }
        }
        if !changed {
            return origins;
        }
    }
}

fn instruction(statement: &Statement) -> Option<&Instruction> {
    if let Statement::Instruction(instruction) = statement { Some(instruction) } else { None }
}

fn waits(instruction: &Instruction) -> bool {
    let wait = instruction.modifiers.has(Modifier::Wait);
    instruction.opcode == Opcode::Griddepcontrol && wait && instruction.guard.is_none()
}

/// Returns an error for an instruction that is not allowed before `griddepcontrol.wait`.
fn violation(instruction: &Instruction, allowed: impl Fn(RegisterId) -> bool) -> Option<String> {
    let global =
        !instruction.modifiers.has(Modifier::Shared) && !instruction.modifiers.has(Modifier::Param);
    let what = match instruction.opcode {
        Opcode::Ret | Opcode::Exit => "ends",
        // Prefetches do not change results.
        Opcode::Cp if instruction.modifiers.has(Modifier::BulkPrefetch) => return None,
        // A copy into shared memory, unlike the commit or wait of a group.
        Opcode::Ld | Opcode::Cp if global && instruction.operands.len() > 1 => {
            let Some(Operand::Address(address)) = instruction.operands.get(1) else {
                return Some("loads from nowhere".to_owned());
            };
            match address.base {
                AddressBase::Register(register) if allowed(register) => return None,
                _ => "loads what it has not declared",
            }
        }
        Opcode::St | Opcode::Atom | Opcode::Red if global => "writes",
        _ => return None,
    };
    Some(format!("{what} before it waits: {instruction:?}"))
}

/// Returns the first violation on any path from the start to a wait, or an error if a path reaches
/// the end without a wait.
fn check(image: &str, entry: &Entry) -> Result<(), String> {
    let origins = LazyCell::new(|| origins(entry));
    let allowed = |register| {
        let mut from = origins.get(&register).into_iter().flatten().peekable();
        let declared = |at: &u32| is_read_before_wait(image, &entry.parameters[*at as usize].name);
        from.peek().is_some() && from.all(declared)
    };
    let labels: BTreeMap<LabelId, usize> = (0..)
        .zip(&entry.body)
        .filter_map(|(at, statement)| match statement {
            Statement::Label(label) => Some((*label, at)),
            _ => None,
        })
        .collect();
    let (mut seen, mut paths) = (BTreeSet::new(), vec![0]);
    while let Some(at) = paths.pop() {
        if !seen.insert(at) {
            continue;
        }
        let Some(statement) = entry.body.get(at) else {
            return Err("gets to its end without waiting".to_owned());
        };
        let Some(instruction) = instruction(statement) else {
            paths.push(at + 1);
            continue;
        };
        if waits(instruction) {
            continue;
        }
        if let Some(violation) = violation(instruction, allowed) {
            return Err(violation);
        }
        let target = instruction.operands.iter().find_map(|operand| match operand {
            Operand::Label(label) => Some(labels[label]),
            _ => None,
        });
        paths.extend(target);
        if target.is_none() || instruction.guard.is_some() {
            paths.push(at + 1);
        }
    }
    Ok(())
}

#[test]
fn entries_wait_before_undeclared_accesses() {
    for &target in SmTarget::GENERATED {
        for image in images::names() {
            let text = images::ptx(image, target).unwrap();
            if !images::supports_pdl(target) {
                assert!(!text.contains("griddepcontrol"), "{image} for {target}");
                continue;
            }
            for entry in &parse(text).unwrap().entries {
                let waiting = entry.body.iter().filter_map(instruction).filter(|it| waits(it));
                assert_eq!(waiting.count(), 1, "{} for {target}", entry.name);
                let found = check(image, entry);
                found.unwrap_or_else(|what| panic!("{} for {target} {what}", entry.name));
            }
        }
    }
}

#[test]
fn violations_are_found() {
    let target = images::names().find(|image| *image == "gemv_bf16").unwrap();
    let text = images::ptx(target, SmTarget::arch_specific(90)).unwrap();
    let module = parse(text).unwrap();
    assert!(module.entries.iter().all(|entry| check("gemv_bf16", entry).is_ok()));
    // No declarations apply to an image of another name.
    assert!(module.entries.iter().all(|entry| check("other", entry).is_err()));
    let without = parse(&text.replace("griddepcontrol.wait;", "bar.sync 0;")).unwrap();
    assert!(without.entries.iter().all(|entry| check("gemv_bf16", entry).is_err()));
}
