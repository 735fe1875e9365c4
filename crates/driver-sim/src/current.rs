//! The device that is current on a thread, for simulated libraries that run on simulated devices.

use std::cell::Cell;
use std::sync::Arc;

use retrograph_driver_sys::DriverTable;
use retrograph_ptx_exec::memory::Memory;

use crate::world;

thread_local! {
    /// The slot of the simulator that this thread last called.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Records a call into the world of `slot`.
pub(crate) fn note_call(slot: usize) {
    LAST.set(Some(slot));
}

/// The current device and its memory, for simulated libraries.
#[derive(Clone, Debug)]
pub struct CurrentDevice {
    /// The functions of its driver.
    pub table: DriverTable,
    /// Its memory. Work that a library enqueues as a host function can use it; host functions must
    /// not call the driver.
    pub memory: Arc<Memory>,
    /// Its ordinal in the machine.
    pub ordinal: usize,
}

/// The device of the current context of the calling thread, in the simulator that the thread called
/// last. `None` without a usable context.
pub fn current_device() -> Option<CurrentDevice> {
    let world = world::in_slot(LAST.get()?)?;
    if world.hosting.is_here() {
        return None;
    }
    let mut state = world.state.lock();
    let device = state.current().ok()?;
    let (table, _) = state.table?;
    let device = &state.devices[device];
    Some(CurrentDevice { table, memory: Arc::clone(&device.memory), ordinal: device.ordinal })
}
