//! The live contexts of the process: one for each device, however often its driver was loaded.
//!
//! Every load of the driver library gives the same functions, and every retain of a device the same
//! primary context. A wait for that context, or the freeing of memory in it, breaks captures of all
//! who use it. They must therefore know of each other's captures, and share one [`Context`] even
//! when each has loaded the driver for itself.
//!
//! [`Context`]: crate::Context

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::context::Inner;
use crate::device::DeviceIndex;
use crate::driver::Driver;
use crate::error::Result;
use crate::release::Releases;

/// What tells a primary context from all others of the process: who gives it, and for which device.
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

struct Entry {
    key: Key,
    context: Weak<Inner>,
    /// Outlives the context, so that one that is just ending and its successor know of each other.
    releases: Arc<Releases>,
}

/// There are as many entries as devices were ever used.
static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The live context of a device, or the one that `make` makes.
pub(crate) fn find_or_make(
    driver: &Driver,
    device: DeviceIndex,
    make: impl FnOnce(Arc<Releases>) -> Result<Inner>,
) -> Result<Arc<Inner>> {
    let key = Key::new(driver, device);
    let mut entries = ENTRIES.lock();
    let known = entries.iter_mut().find(|entry| entry.key == key);
    if let Some(inner) = known.as_ref().and_then(|entry| entry.context.upgrade()) {
        return Ok(inner);
    }
    let releases = known.as_ref().map(|entry| entry.releases.clone()).unwrap_or_default();
    let inner = Arc::new(make(releases.clone())?);
    let context = Arc::downgrade(&inner);
    match known {
        Some(entry) => entry.context = context,
        None => entries.push(Entry { key, context, releases }),
    }
    Ok(inner)
}
