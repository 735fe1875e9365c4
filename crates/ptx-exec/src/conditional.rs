//! Values of conditional handles, by which kernels control the execution of their graph.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The values of the conditional handles of a running graph. Handles count from 1.
#[derive(Debug, Default)]
pub struct ConditionalValues(Mutex<Vec<Option<u32>>>);

impl ConditionalValues {
    /// Creates handles with these values; `None` means not set.
    pub fn new(values: Vec<Option<u32>>) -> Self {
        Self(Mutex::new(values))
    }

    fn values(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a handle, if it has one.
    pub fn get(&self, handle: u64) -> Option<u32> {
        *self.values().get(index(handle)?)?
    }

    /// Sets the value of a handle. Returns false if there is no such handle.
    pub(super) fn set(&self, handle: u64, value: u32) -> bool {
        let mut values = self.values();
        let found = index(handle).and_then(|index| values.get_mut(index));
        found.map(|found| *found = Some(value)).is_some()
    }
}

fn index(handle: u64) -> Option<usize> {
    usize::try_from(handle).ok()?.checked_sub(1)
}
