//! Locks with the interface of `parking_lot` on those of the model checker.

use std::ops::{Deref, DerefMut};

use loom::sync::{Condvar as PlainCondvar, Mutex as Plain, MutexGuard as PlainGuard};

#[derive(Default)]
pub(crate) struct Mutex<T>(Plain<T>);

/// Always has the lock, but for while it waits.
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

/// Readers and writers. As in `parking_lot`, a reader who asks for a recursive lock waits for a
/// writer that holds the lock, and not for one that waits for it.
pub(crate) struct RwLock<T> {
    holders: Plain<Holders>,
    changed: PlainCondvar,
    _value: T,
}

#[derive(Default)]
struct Holders {
    readers: usize,
    writer: bool,
}

pub(crate) struct RwLockReadGuard<'a, T>(&'a RwLock<T>);

pub(crate) struct RwLockWriteGuard<'a, T>(&'a RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { holders: Plain::default(), changed: PlainCondvar::new(), _value: value }
    }

    pub(crate) fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        let mut holders = self.holders.lock().unwrap();
        while holders.writer {
            holders = self.changed.wait(holders).unwrap();
        }
        holders.readers += 1;
        RwLockReadGuard(self)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut holders = self.holders.lock().unwrap();
        while holders.writer || holders.readers > 0 {
            holders = self.changed.wait(holders).unwrap();
        }
        holders.writer = true;
        RwLockWriteGuard(self)
    }

    fn change(&self, change: impl FnOnce(&mut Holders)) {
        change(&mut self.holders.lock().unwrap());
        self.changed.notify_all();
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    /// Whom the lock is handed to is the checker's choice.
    pub(crate) fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.0.change(|holders| holders.readers -= 1);
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.0.change(|holders| holders.writer = false);
    }
}
