//! Locks of the model checker with the interface of `parking_lot`.

use std::ops::{Deref, DerefMut};

use loom::sync::{Condvar as PlainCondvar, Mutex as Plain, MutexGuard as PlainGuard};

#[derive(Default)]
pub(crate) struct Mutex<T>(Plain<T>);

/// Holds the lock except while it waits.
pub(crate) struct MutexGuard<'a, T>(Option<PlainGuard<'a, T>>);

pub(crate) struct Condvar(PlainCondvar);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Plain::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(PlainCondvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
