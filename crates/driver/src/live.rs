//! The live primary contexts of the process: one per device, even if its driver was loaded several
//! times.
//!
//! Every load of the driver library returns the same functions, and every retain of a device
//! returns the same primary context. Waiting for that context or freeing memory in it breaks the
//! captures of all its users. All users therefore share one context object and one list of
//! captures, even if each loaded the driver itself.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::device::DeviceIndex;
use crate::driver::Driver;
use crate::error::Result;

/// Identifies a primary context within the process: the driver functions and the device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    retain: usize,
    make_current: usize,
    device: DeviceIndex,
}

impl Key {
    fn new(driver: &Driver, device: DeviceIndex) -> Self {
        let table = driver.table();
        let retain = table.cuDevicePrimaryCtxRetain as *const () as usize;
        let make_current = table.cuCtxSetCurrent as *const () as usize;
        Self { retain, make_current, device }
    }
}

struct Entry<C, S> {
    key: Key,
    context: Weak<C>,
    /// Outlives the context, so an ending context and its successor share it.
    shared: Arc<S>,
}

/// Live contexts of type `C`, each with shared state of type `S`. One entry per device ever used.
pub(crate) struct LiveContexts<C, S> {
    entries: Mutex<Vec<Entry<C, S>>>,
}

impl<C, S: Default> LiveContexts<C, S> {
    pub(crate) const fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()) }
    }

    /// Returns the live context of a device, or the one that `make` returns.
    pub(crate) fn find_or_make(
        &self,
        driver: &Driver,
        device: DeviceIndex,
        make: impl FnOnce(Arc<S>) -> Result<C>,
    ) -> Result<Arc<C>> {
        let key = Key::new(driver, device);
        let mut entries = self.entries.lock();
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
