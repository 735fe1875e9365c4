//! Global variables of modules.

use std::collections::BTreeMap;

use retrograph_driver_sys::CUresult;
use retrograph_ptx::ast::{Immediate, Space, Variable};

use crate::api::LoadFailure;
use crate::memory::Memory;
use crate::refusal::{Rule, refuse};
use crate::state::memory_refusal;

/// Address and size of each variable by name.
pub(crate) type Globals = BTreeMap<String, (u64, u64)>;

/// Allocates and initializes the global and constant variables of a module.
pub(crate) fn allocate(memory: &Memory, variables: &[Variable]) -> Result<Globals, LoadFailure> {
    let mut globals = Globals::new();
    let placed = |variable: &&Variable| {
        matches!(variable.space, Space::Global | Space::Const) && variable.size() > 0
    };
    for variable in variables.iter().filter(placed) {
        match place(memory, variable) {
            Ok(address) => globals.insert(variable.name.clone(), (address, variable.size())),
            Err(failure) => {
                free(memory, &globals);
                return Err(failure);
            }
        };
    }
    Ok(globals)
}

/// Bytes of the constant variables of a module, one after the other.
pub(crate) fn constant_bytes(variables: &[Variable]) -> u32 {
    let constants = variables.iter().filter(|variable| variable.space == Space::Const);
    let end = constants.fold(0u64, |end, variable| {
        end.next_multiple_of(u64::from(variable.alignment())) + variable.size()
    });
    u32::try_from(end).unwrap_or(u32::MAX)
}

/// Frees the memory of [`allocate`].
pub(crate) fn free(memory: &Memory, globals: &Globals) {
    for (address, _) in globals.values() {
        // The addresses came from this memory, and a module is unloaded once.
        let _ = memory.free(*address);
    }
}

fn place(memory: &Memory, variable: &Variable) -> Result<u64, LoadFailure> {
    let bytes = initial_bytes(variable)?;
    let written = memory.alloc(bytes.len() as u64).and_then(|address| {
        memory.write(address, &bytes)?;
        Ok(address)
    });
    written.map_err(|error| LoadFailure::new(memory_refusal(&error), error.to_string()))
}

/// The bytes of a variable when its module is loaded: its initializer, then zeros.
fn initial_bytes(variable: &Variable) -> Result<Vec<u8>, LoadFailure> {
    let element = variable.ty.size() as usize;
    let mut bytes = Vec::with_capacity(variable.size() as usize);
    for value in &variable.initial {
        bytes.extend_from_slice(&bits(value).to_le_bytes()[..element]);
    }
    if bytes.len() as u64 > variable.size() {
        let message = format!("variable `{}` has more initial values than elements", variable.name);
        return Err(LoadFailure::new(
            refuse(CUresult::CUDA_ERROR_INVALID_PTX, Rule::ModuleText),
            message,
        ));
    }
    bytes.resize(variable.size() as usize, 0);
    Ok(bytes)
}

fn bits(value: &Immediate) -> u64 {
    match *value {
        Immediate::Integer(value) => value.cast_unsigned(),
        Immediate::F32(bits) => u64::from(bits),
        Immediate::F64(bits) => bits,
    }
}
