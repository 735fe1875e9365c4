//! Handing things back to the driver, but never while a capture could be broken by it.
//!
//! Freeing memory or unloading a module on a thread that captures breaks the capture, and so does
//! waiting for the context on any thread, by whichever load of the driver. Whatever is dropped
//! while a capture is in progress is put on a list of the context, which is worked off when the
//! last capture has ended.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use retrograph_driver_sys::{CUresult, DriverTable};

use crate::context::Context;
use crate::error::Result;

type Action = Box<dyn FnOnce(&DriverTable) -> CUresult + Send>;

/// The captures in progress in the primary context of a device, on any thread, and what waits for
/// their end.
#[derive(Default)]
pub(crate) struct Releases {
    state: Mutex<State>,
    /// Held for reading by what would break a capture on any thread, so that none begins
    /// meanwhile, and for writing while one begins.
    gate: RwLock<()>,
}

#[derive(Default)]
struct State {
    captures: usize,
    deferred: Vec<(&'static str, Action)>,
}

impl Releases {
    /// Begins a capture by `begin`, after releases and waits in progress, and counts it.
    pub(crate) fn begin_capture(&self, begin: impl FnOnce() -> Result<()>) -> Result<()> {
        let _gate = self.gate.write();
        begin()?;
        self.state.lock().captures += 1;
        Ok(())
    }

    /// Lets no capture begin until the guard is dropped. Releases nest, since owners own others.
    pub(crate) fn no_capture_begins(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read_recursive()
    }

    /// Whether any thread captures in the context.
    pub(crate) fn capturing(&self) -> bool {
        self.state.lock().captures > 0
    }

    /// Gives `action` back to be run now, or keeps it for the end of the captures in progress. The
    /// caller lets no capture begin meanwhile.
    pub(crate) fn now_or_later<F>(&self, call: &'static str, action: F) -> Option<F>
    where
        F: FnOnce(&DriverTable) -> CUresult + Send + 'static,
    {
        let mut state = self.state.lock();
        if state.captures == 0 {
            return Some(action);
        }
        state.deferred.push((call, Box::new(action)));
        None
    }

    /// How many releases wait for the end of a capture.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().deferred.len()
    }

    /// Counts the end of a capture, and returns what may be released when it was the last one.
    fn capture_ends(&self) -> Vec<(&'static str, Action)> {
        let mut state = self.state.lock();
        state.captures -= 1;
        if state.captures > 0 { Vec::new() } else { std::mem::take(&mut state.deferred) }
    }

    /// Works off what is left when the context ends.
    pub(crate) fn run_all(&self, table: &DriverTable) {
        let deferred = std::mem::take(&mut self.state.lock().deferred);
        for (call, action) in deferred {
            let code = action(table);
            if !code.is_success() {
                tracing::warn!(call, %code, "a release failed");
            }
        }
    }
}

impl Context {
    /// Runs `action`, which hands something back to the driver by `call`: at once, or after the
    /// captures in progress. On a lost context it is dropped, since the driver has freed all.
    pub(crate) fn release<F>(&self, call: &'static str, action: F)
    where
        F: FnOnce(&DriverTable) -> CUresult + Send + 'static,
    {
        let _gate = self.releases().no_capture_begins();
        if let Some(action) = self.releases().now_or_later(call, action) {
            self.run_release(call, action);
        }
    }

    /// How many releases wait for the end of a capture in this context.
    pub fn deferred_releases(&self) -> usize {
        self.releases().waiting()
    }

    /// Counts the end of a capture and works off what waited for it.
    pub(crate) fn capture_ended(&self) {
        let _gate = self.releases().no_capture_begins();
        for (call, action) in self.releases().capture_ends() {
            self.run_release(call, action);
        }
    }

    fn run_release(&self, call: &'static str, action: impl FnOnce(&DriverTable) -> CUresult) {
        if let Err(error) = self.bind() {
            tracing::debug!(%error, call, "nothing to release");
            return;
        }
        if let Err(error) = self.check(call, action(self.table())) {
            tracing::warn!(%error, "a release failed");
        }
    }
}
