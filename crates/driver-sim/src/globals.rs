//! Global variables of modules. Managed variables are host memory that is mapped on every device.

use std::collections::BTreeMap;

use retrograph_driver_sys::CUresult;
use retrograph_ptx::ast::{Immediate, StateSpace, Variable};
use retrograph_ptx_exec::memory::MemoryError;

use crate::api::LoadFailure;
use crate::refusal::{Rule, refuse};
use crate::state::{Pinned, State, memory_refusal};

/// The maximum total size of a module's constant variables, in bytes.
///
/// Source: `ptxas` 13.0, which rejects more for every target.
const MAX_CONSTANT_BYTES: u32 = 64 << 10;

/// Address and size of each variable by name.
pub(crate) type Globals = BTreeMap<String, (u64, u64)>;

impl State {
    /// Allocates and initializes the global and constant variables of a module, except those that
    /// its library has allocated.
    pub(crate) fn allocate_globals(
        &mut self,
        device: usize,
        variables: &[Variable],
        shared: &Globals,
    ) -> Result<Globals, LoadFailure> {
        let mut globals = shared.clone();
        let placed = |variable: &&Variable| {
            matches!(variable.space, StateSpace::Global | StateSpace::Const)
                && variable.size() > 0
                && !shared.contains_key(&variable.name)
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

    /// Allocates the managed variables of a library. They exist without a context.
    pub(crate) fn allocate_managed(
        &mut self,
        variables: &[Variable],
    ) -> Result<Globals, LoadFailure> {
        let managed = variables.iter().filter(|variable| variable.is_managed).cloned();
        let globals = self.allocate_globals(0, &managed.collect::<Vec<_>>(), &Globals::new())?;
        for (address, _) in globals.values() {
            if let Some(pinned) = self.pinned.get_mut(&(*address as usize)) {
                pinned.is_shared = true;
            }
        }
        Ok(globals)
    }

    fn place_global(&mut self, device: usize, variable: &Variable) -> Result<u64, LoadFailure> {
        let (initial, bytes) = (initial_bytes(variable)?, variable.size());
        let memory = &self.devices[device].memory;
        if variable.is_managed {
            let failed = |refusal| {
                LoadFailure::new(refusal, format!("memory of managed variable `{}`", variable.name))
            };
            // Initialization commits all host memory of a variable, so one that exceeds the
            // device's memory must fail before.
            if bytes > memory.total() {
                let refusal = refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::MemoryExhausted);
                return Err(failed(refusal));
            }
            let pinned = Pinned::variable(&initial, bytes as usize, device).map_err(failed)?;
            return self.pin(pinned).map(|address| address as u64).map_err(failed);
        }
        let written = memory.alloc(bytes).and_then(|address| {
            memory.fill(address, &[0], bytes)?;
            memory.write(address, &initial)?;
            Ok(address)
        });
        let failed = |error: MemoryError| {
            let message = format!("variable `{}`: {error}", variable.name);
            LoadFailure::new(memory_refusal(&error), message)
        };
        written.map_err(failed)
    }

    /// Frees the memory of [`State::allocate_globals`].
    pub(crate) fn free_globals(&mut self, device: usize, globals: &Globals) {
        for (address, _) in globals.values() {
            match self.pinned.get(&(*address as usize)) {
                Some(pinned) if pinned.is_shared => {}
                Some(_) => self.unpin(*address as usize),
                // The address came from this memory, and a module is unloaded once.
                None => drop(self.devices[device].memory.free(*address)),
            }
        }
    }

    /// Frees the memory of [`State::allocate_managed`].
    pub(crate) fn free_managed(&mut self, globals: &Globals) {
        globals.values().for_each(|(address, _)| self.unpin(*address as usize));
    }
}

/// Total bytes of a module's constant variables, with padding.
pub(crate) fn constant_bytes(variables: &[Variable]) -> Result<u32, LoadFailure> {
    let constants = || variables.iter().filter(|variable| variable.space == StateSpace::Const);
    let end = constants().fold(0u64, |end, variable| {
        end.next_multiple_of(u64::from(variable.alignment())) + variable.size()
    });
    match u32::try_from(end) {
        Ok(bytes) if bytes <= MAX_CONSTANT_BYTES => Ok(bytes),
        _ => {
            let largest = constants().max_by_key(|variable| variable.size());
            let message = format!(
                "the module has {end} bytes of const memory, above the maximum of \
                 {MAX_CONSTANT_BYTES}; its largest variable is `{}`",
                largest.map_or("", |variable| &variable.name)
            );
            Err(LoadFailure::bad_text(Rule::ModuleText, message))
        }
    }
}

/// The initial bytes of a variable; the remaining bytes are zero.
fn initial_bytes(variable: &Variable) -> Result<Vec<u8>, LoadFailure> {
    let element = variable.ty.size() as usize;
    let mut bytes = Vec::with_capacity(element * variable.initial.len());
    for value in &variable.initial {
        bytes.extend_from_slice(&bits(value).to_le_bytes()[..element]);
    }
    if bytes.len() as u64 > variable.size() {
        let message = format!("variable `{}` has more initial values than elements", variable.name);
        return Err(LoadFailure::bad_text(Rule::ModuleText, message));
    }
    Ok(bytes)
}

fn bits(value: &Immediate) -> u64 {
    match *value {
        Immediate::Integer(value) => value.cast_unsigned(),
        Immediate::F32(bits) => u64::from(bits),
        Immediate::F64(bits) => bits,
    }
}
