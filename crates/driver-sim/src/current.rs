//! The device that is current on a thread, for simulated libraries that run on simulated devices.

use std::cell::Cell;
use std::sync::Arc;

use retrograph_driver_sys::DriverTable;
use retrograph_ptx_exec::memory::Memory;

use crate::world;

thread_local! {
    /// The slot of the simulator that this thread last called.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether the default stream of the calls of this thread is its own.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether a null stream is the per-thread default stream in this call.
pub(crate) fn is_default_per_thread() -> bool {
    PER_THREAD.get()
}

/// Makes calls as programs do that are compiled for per-thread default streams: a null stream, and
/// the stream of functions without a stream argument, is the default stream of the calling thread.
///
/// The library `libcuda.so.1` of `retrograph-sim` has the functions with the suffixes `_ptsz` and
/// `_ptds`, which do this.
pub fn with_per_thread_default_stream<T>(calls: impl FnOnce() -> T) -> T {
    /// Restores the former meaning, also after a panic.
    struct Former(bool);
    impl Drop for Former {
        fn drop(&mut self) {
            PER_THREAD.set(self.0);
        }
    }
    let _former = Former(PER_THREAD.replace(true));
    calls()
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
