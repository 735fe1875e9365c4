//! The live contexts of the process: one per primary context of a device, even if its driver was
//! loaded several times, and one per borrowed context.
//!
//! Every load of the driver library returns the same functions, and every retain of a device
//! returns the same primary context. Waiting for that context or freeing memory in it breaks the
//! captures of all its users. All users therefore share one context object and one list of
//! captures, even if each loaded the driver itself.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use retrograph_driver_sys::CUcontext;

use crate::device::DeviceIndex;
use crate::driver::Driver;
use crate::error::Result;

/// A context of a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The primary context of a device.
    Primary(DeviceIndex),
    /// A context that somebody else made.
    Borrowed(CUcontext),
}

/// Identifies a context within the process: the driver functions and the context.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    retain: usize,
    make_current: usize,
    which: Which,
}

impl Key {
    fn new(driver: &Driver, which: Which) -> Self {
        let table = driver.table();
        let retain = table.cuDevicePrimaryCtxRetain as *const () as usize;
        let make_current = table.cuCtxSetCurrent as *const () as usize;
        Self { retain, make_current, which }
    }
}

struct Entry<C, S> {
    key: Key,
    context: Weak<C>,
    /// Outlives the context, so an ending context and its successor share it.
    shared: Arc<S>,
}

impl<C, S> Entry<C, S> {
    /// Whether the context has ended, and nothing of it is left to be done. The next borrowed
    /// context may have the same handle.
    fn has_ended(&self) -> bool {
        self.context.strong_count() == 0 && Arc::strong_count(&self.shared) == 1
    }
}

/// Live contexts of type `C`, each with shared state of type `S`.
pub(crate) struct LiveContexts<C, S> {
    entries: Mutex<Vec<Entry<C, S>>>,
}

impl<C, S: Default> LiveContexts<C, S> {
    pub(crate) const fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()) }
    }

    /// Returns the live context, if there is one.
    pub(crate) fn find(&self, driver: &Driver, which: Which) -> Option<Arc<C>> {
        let key = Key::new(driver, which);
        let entries = self.entries.lock();
        entries.iter().find(|entry| entry.key == key)?.context.upgrade()
    }

    /// Returns the live context, or the one that `make` returns.
    pub(crate) fn find_or_make(
        &self,
        driver: &Driver,
        which: Which,
        make: impl FnOnce(Arc<S>) -> Result<C>,
    ) -> Result<Arc<C>> {
        let key = Key::new(driver, which);
        let mut entries = self.entries.lock();
        entries.retain(|entry| !entry.has_ended());
        let known = entries.iter_mut().find(|entry| entry.key == key);
        if let Some(context) = known.as_ref().and_then(|entry| entry.context.upgrade()) {
            return Ok(context);
        }
        let shared = known.as_ref().map(|entry| entry.shared.clone()).unwrap_or_default();
        let made = Arc::new(make(shared.clone())?);
        let context = Arc::downgrade(&made);
        match known {
            Some(entry) => entry.context = context,
            None => entries.push(Entry { key, context, shared }),
        }
        Ok(made)
    }
}
