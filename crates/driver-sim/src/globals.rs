//! Global variables of modules. Managed ones are memory of the host that every device has mapped.

use std::collections::BTreeMap;

use retrograph_driver_sys::CUresult;
use retrograph_ptx::ast::{Immediate, Space, Variable};

use crate::api::LoadFailure;
use crate::refusal::{Rule, refuse};
use crate::state::{Pinned, State, memory_refusal};

/// Address and size of each variable by name.
pub(crate) type Globals = BTreeMap<String, (u64, u64)>;

impl State {
    /// Allocates and initializes the global and constant variables of a module.
    pub(crate) fn allocate_globals(
        &mut self,
        device: usize,
        variables: &[Variable],
    ) -> Result<Globals, LoadFailure> {
        let mut globals = Globals::new();
        let placed = |variable: &&Variable| {
            matches!(variable.space, Space::Global | Space::Const) && variable.size() > 0
        };
        for variable in variables.iter().filter(placed) {
            match self.place_global(device, variable) {
                Ok(address) => globals.insert(variable.name.clone(), (address, variable.size())),
                Err(failure) => {
                    self.free_globals(device, &globals);
                    return Err(failure);
                }
            };
        }
        Ok(globals)
    }

    fn place_global(&mut self, device: usize, variable: &Variable) -> Result<u64, LoadFailure> {
        let bytes = initial_bytes(variable)?;
        let failed = |refusal| LoadFailure::new(refusal, "memory of a managed variable".to_owned());
        if variable.is_managed {
            let pinned = Pinned::variable(&bytes, device).map_err(failed)?;
            return self.pin(pinned).map(|address| address as u64).map_err(failed);
        }
        let memory = &self.devices[device].memory;
        let written = memory.alloc(bytes.len() as u64).and_then(|address| {
            memory.write(address, &bytes)?;
            Ok(address)
        });
        written.map_err(|error| LoadFailure::new(memory_refusal(&error), error.to_string()))
    }

    /// Frees the memory of [`State::allocate_globals`].
    pub(crate) fn free_globals(&mut self, device: usize, globals: &Globals) {
        for (address, _) in globals.values() {
            match self.pinned.contains_key(&(*address as usize)) {
                true => self.unpin(*address as usize),
                // The address came from this memory, and a module is unloaded once.
                false => drop(self.devices[device].memory.free(*address)),
            }
        }
    }
}

/// Bytes of the constant variables of a module, one after the other.
pub(crate) fn constant_bytes(variables: &[Variable]) -> u32 {
    let constants = variables.iter().filter(|variable| variable.space == Space::Const);
    let end = constants.fold(0u64, |end, variable| {
        end.next_multiple_of(u64::from(variable.alignment())) + variable.size()
    });
    u32::try_from(end).unwrap_or(u32::MAX)
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
