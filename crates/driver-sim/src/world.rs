//! Worlds and their slots: one world is one simulated machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use retrograph_driver_sys::{CUcontext, CUdevice, CUresult, DriverTable};

use crate::config::{Config, SimError};
use crate::diagnostic::Diagnostic;
use crate::live::LiveObjects;
use crate::refusal::Refused;
use crate::state::State;
use crate::trampoline::{self, Function, SLOTS};
use crate::work::Hosting;

/// How long a new simulator waits for a free slot.
const SLOT_WAIT: Duration = Duration::from_secs(60);

/// An injected failure: the `remaining`-th call from now returns `code`.
struct Failure {
    function: Function,
    remaining: u64,
    code: CUresult,
}

/// One simulated machine.
pub(crate) struct World {
    pub(crate) state: Mutex<State>,
    /// Detects calls from inside host functions, without the lock of the state.
    pub(crate) hosting: Arc<Hosting>,
    calls: Vec<AtomicU64>,
    failures: Mutex<Vec<Failure>>,
}

static WORLDS: [RwLock<Option<Arc<World>>>; SLOTS] = [const { RwLock::new(None) }; SLOTS];
static FREED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// The world in a slot.
pub(crate) fn in_slot(slot: usize) -> Option<Arc<World>> {
    WORLDS[slot].read().clone()
}

impl World {
    /// Counts a call. Returns the code of an injected failure.
    pub(crate) fn count(&self, function: Function) -> Option<CUresult> {
        self.calls[function as usize].fetch_add(1, Ordering::Relaxed);
        let mut failures = self.failures.lock();
        let mut due = None;
        failures.retain_mut(|failure| {
            if failure.function != function {
                return true;
            }
            failure.remaining -= 1;
            let fires = failure.remaining == 0;
            if fires {
                due = due.or(Some(failure.code));
            }
            !fires
        });
        due
    }
}

/// A simulated NVIDIA driver with its devices.
///
/// After the simulator is dropped, calls through its table return `CUDA_ERROR_DEINITIALIZED` until
/// another simulator reuses the slot. So a table must not outlive its simulator.
///
/// ```
/// use retrograph_driver_sim::{Config, Simulator};
/// use retrograph_driver_sys::{CUresult, CUstream};
///
/// let simulator = Simulator::new(Config::default())?;
/// let driver = simulator.table();
/// simulator.fail("cuStreamCreate", 2, CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
/// let (mut context, mut stream) = (Default::default(), CUstream::NULL);
/// // SAFETY: every pointer is valid during its call.
/// unsafe {
///     (driver.cuInit)(0).ok()?;
///     (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok()?;
///     (driver.cuCtxSetCurrent)(context).ok()?;
///     (driver.cuStreamCreate)(&mut stream, 1).ok()?;
///     assert_eq!((driver.cuStreamCreate)(&mut stream, 1), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
/// }
/// assert_eq!(simulator.call_count("cuStreamCreate"), 2);
/// assert_eq!(simulator.live().streams, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulator {
    slot: usize,
    world: Arc<World>,
    table: DriverTable,
}

impl Simulator {
    /// Creates a simulator. If all slots are in use, waits for a free one for at most a minute.
    pub fn new(config: Config) -> Result<Self, SimError> {
        config.check()?;
        let version = config.driver_version;
        let state = State::new(config);
        let world = Arc::new(World {
            hosting: Arc::clone(&state.hosting),
            state: Mutex::new(state),
            calls: Function::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            failures: Mutex::new(Vec::new()),
        });
        let slot = take_slot(&world)?;
        let table = trampoline::table(slot, version);
        world.state.lock().table = Some((table, trampoline::lacking(slot)));
        Ok(Self { slot, world, table })
    }

    /// The functions of the driver.
    pub fn table(&self) -> &DriverTable {
        &self.table
    }

    /// Makes a later call fail: the `nth` call of `call` from now (1 is the next one) does nothing
    /// and returns `code`. A sticky code also loses all contexts, as on hardware.
    pub fn fail(&self, call: &str, nth: u64, code: CUresult) -> Result<(), SimError> {
        let found = Function::ALL.iter().find(|function| function.name() == call);
        let function = *found.ok_or_else(|| SimError::UnknownCall { name: call.to_owned() })?;
        let failure = Failure { function, remaining: nth.max(1), code };
        self.world.failures.lock().push(failure);
        Ok(())
    }

    /// From now on, allocations that would bring the allocated bytes of their device above `bytes`
    /// fail with code 2. `cuMemGetInfo_v2` does not change, as on a device with fragmented memory.
    /// `u64::MAX` removes the limit.
    ///
    /// Allocation nodes of graphs are not affected, since they get their memory when they run.
    ///
    /// ```
    /// use retrograph_driver_sim::{Config, Simulator};
    /// use retrograph_driver_sys::CUresult;
    ///
    /// let simulator = Simulator::new(Config::default())?;
    /// let driver = simulator.table();
    /// simulator.out_of_memory_at(1000);
    /// let (mut context, mut address, mut free, mut total) = (Default::default(), 0, 0, 0);
    /// // SAFETY: every pointer is valid during its call.
    /// unsafe {
    ///     (driver.cuInit)(0).ok()?;
    ///     (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok()?;
    ///     (driver.cuCtxSetCurrent)(context).ok()?;
    ///     (driver.cuMemAlloc_v2)(&mut address, 600).ok()?;
    ///     let second = (driver.cuMemAlloc_v2)(&mut address, 600);
    ///     assert_eq!(second, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    ///     (driver.cuMemGetInfo_v2)(&mut free, &mut total).ok()?;
    /// }
    /// assert_eq!(total - free, 600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn out_of_memory_at(&self, bytes: u64) {
        let state = self.world.state.lock();
        state.devices.iter().for_each(|device| device.memory.limit_to(bytes));
    }

    /// The number of calls of each called function.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        let count =
            |function: Function| self.world.calls[function as usize].load(Ordering::Relaxed);
        let all = Function::ALL.iter().map(|function| (function.name(), count(*function)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The number of calls of a function.
    pub fn call_count(&self, call: &str) -> u64 {
        self.calls().get(call).copied().unwrap_or(0)
    }

    /// Counts of the live objects. At the end of a program, they are leaks.
    pub fn live(&self) -> LiveObjects {
        self.world.state.lock().live()
    }

    /// The handle that the primary context of a device has while it exists. `None` if the device
    /// does not exist, and inside a host function of this machine.
    pub fn primary_context(&self, device: CUdevice) -> Option<CUcontext> {
        if self.world.hosting.is_here() {
            return None;
        }
        self.world.state.lock().primary_context(usize::try_from(device).ok()?)
    }

    /// Whether a context exists. `None` inside a host function of this machine.
    pub fn has_context(&self, context: CUcontext) -> Option<bool> {
        if self.world.hosting.is_here() {
            return None;
        }
        let state = self.world.state.lock();
        Some(state.devices.iter().any(|device| device.context == Some(context)))
    }

    /// All diagnostics, oldest first.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.world.state.lock().diagnostics.clone()
    }

    /// The diagnostics after the first `seen`, oldest first. Empty inside a host function of this
    /// machine, which cannot take the lock.
    pub fn diagnostics_from(&self, seen: usize) -> Vec<Diagnostic> {
        if self.world.hosting.is_here() {
            return Vec::new();
        }
        self.world.state.lock().diagnostics.get(seen..).unwrap_or_default().to_vec()
    }

    /// Returns the `printf` output of kernels since the last call. It is complete for work that the
    /// host waited for.
    pub fn take_output(&self) -> String {
        if self.world.hosting.is_here() {
            return String::new();
        }
        let state = self.world.state.lock();
        let mut output = state.output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut output)
    }

    /// Whether all calls of the machine end within `wait`; a call that waits for a host function
    /// does not count as running. Check this at exit before the other methods, which would block on
    /// a call that never ends, such as one that runs a kernel.
    pub fn is_free_within(&self, wait: Duration) -> bool {
        !self.world.hosting.is_here() && self.world.state.try_lock_for(wait).is_some()
    }

    /// The number of launches of each kernel, by name, including launches from graphs.
    pub fn launches(&self) -> BTreeMap<String, u64> {
        self.world.state.lock().launches.clone()
    }

    /// The distinct errors that calls have returned, without injected failures.
    pub fn refused(&self) -> Vec<Refused> {
        self.world.state.lock().refused.iter().copied().collect()
    }

    /// Ends the world and returns the leaked objects.
    pub fn finish(self) -> Result<(), LiveObjects> {
        let live = self.live();
        if live.is_empty() { Ok(()) } else { Err(live) }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let ended = WORLDS[self.slot].write().take();
        // A call that runs at this moment holds the world; the last holder frees it.
        drop(ended);
        let _guard = FREED.0.lock();
        FREED.1.notify_all();
    }
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Puts a world into a free slot.
fn take_slot(world: &Arc<World>) -> Result<usize, SimError> {
    let deadline = Instant::now() + SLOT_WAIT;
    let mut guard = FREED.0.lock();
    loop {
        for (slot, place) in WORLDS.iter().enumerate() {
            let mut place = place.write();
            if place.is_none() {
                *place = Some(Arc::clone(world));
                return Ok(slot);
            }
        }
        if FREED.1.wait_until(&mut guard, deadline).timed_out() {
            return Err(SimError::TooManySimulators { slots: SLOTS });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_ends_with_its_simulator_and_frees_its_slot() {
        let simulator = Simulator::new(Config::default()).unwrap();
        let (slot, world) = (simulator.slot, Arc::downgrade(&simulator.world));
        assert!(in_slot(slot).is_some_and(|found| Arc::ptr_eq(&found, &simulator.world)));
        drop(simulator);
        assert!(world.upgrade().is_none());
        // Another test may use the slot now, but with another world.
        assert!(
            in_slot(slot).is_none_or(|found| !std::ptr::eq(Arc::as_ptr(&found), world.as_ptr()))
        );
    }

    #[test]
    fn a_simulator_without_a_slot_waits_until_another_one_ends() {
        let make = || Simulator::new(Config::default()).unwrap();
        let mut all: Vec<_> = (0..SLOTS).map(|_| make()).collect();
        let waiting = std::thread::spawn(move || drop(make()));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "every slot is taken");
        all.pop();
        waiting.join().expect("it found the slot that became free");
    }
}
