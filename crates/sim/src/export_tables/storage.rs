//! Context-local storage: values of a library by context and key.
//!
//! The CUDA runtime keeps its state of a context here, and frees it in the callback.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use retrograph_driver_sys::{CUcontext, CUresult};

use super::{Table, code_of, own_machine, refusing};
use crate::Machine;

pub(super) const ID: [u8; 16] = 0xc693336e_1121_df11_a8c3_68f355d89593_u128.to_be_bytes();

/// The table has no size: slot 0 is a function.
pub(super) static TABLE: Table = {
    let mut table = refusing::<3>();
    table[0] = put as *const c_void;
    table[1] = remove as *const c_void;
    table[2] = get as *const c_void;
    Table(table)
};

/// Called with context, key and value after the context was destroyed.
type Destroyed = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);

/// A stored value.
struct Value {
    value: usize,
    destroyed: Option<Destroyed>,
}

/// The values of all contexts, by the addresses of context and key.
#[derive(Default)]
pub(crate) struct Storage(Mutex<BTreeMap<(usize, usize), Value>>);

impl Storage {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, usize), Value>> {
        // The map stays valid if a thread panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machine, and the named context, which is the current one for null.
fn named(context: CUcontext) -> Result<(&'static Machine, CUcontext), CUresult> {
    let (machine, mut named) = (own_machine()?, context);
    if context.is_null() {
        // SAFETY: the place is valid during the call.
        unsafe { (machine.simulator.table().cuCtxGetCurrent)(&mut named) }.ok()?;
    }
    match machine.simulator.has_context(named) {
        Some(true) => Ok((machine, named)),
        Some(false) => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        // A host function may not call the driver.
        None => Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
    }
}

/// Stores a value in a context, in place of an earlier one.
extern "C" fn put(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destroyed: Option<Destroyed>,
) -> CUresult {
    code_of(named(context).map(|(machine, context)| {
        let value = Value { value: value.expose_provenance(), destroyed };
        machine.storage.lock().insert((context.0.addr(), key.expose_provenance()), value);
    }))
}

/// Removes a value without a call of its callback.
extern "C" fn remove(context: CUcontext, key: *mut c_void) -> CUresult {
    code_of(named(context).map(|(machine, context)| {
        machine.storage.lock().remove(&(context.0.addr(), key.addr()));
    }))
}

/// Writes a stored value.
///
/// # Safety
/// `value` is null or valid.
unsafe extern "C" fn get(
    value: *mut *mut c_void,
    context: CUcontext,
    key: *mut c_void,
) -> CUresult {
    code_of(named(context).and_then(|(machine, context)| {
        // SAFETY: passed on from the caller.
        let place = unsafe { value.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let storage = machine.storage.lock();
        let found = storage.get(&(context.0.addr(), key.addr()));
        let found = found.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        *place = std::ptr::with_exposed_provenance_mut(found.value);
        Ok(())
    }))
}

/// Calls the callbacks of contexts that no longer exist. Called after functions that destroy
/// contexts.
pub(crate) fn destroyed(machine: &Machine) {
    let mut storage = machine.storage.lock();
    let handle = |address: usize| CUcontext(std::ptr::without_provenance_mut(address));
    // A call inside a host function destroys nothing.
    let is_gone = |&(context, _): &(usize, usize)| {
        machine.simulator.has_context(handle(context)) == Some(false)
    };
    let gone: Vec<_> = storage.keys().copied().filter(is_gone).collect();
    let gone: Vec<_> =
        gone.into_iter().filter_map(|at| storage.remove(&at).map(|value| (at, value))).collect();
    // A callback may use the storage.
    drop(storage);
    for ((context, key), value) in gone {
        let Some(callback) = value.destroyed else { continue };
        let [key, value] = [key, value.value].map(std::ptr::with_exposed_provenance_mut);
        // SAFETY: the program passed this function together with the value.
        unsafe { callback(handle(context), key, value) };
    }
}
