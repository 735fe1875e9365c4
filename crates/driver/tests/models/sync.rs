//! Locks of the model checker with the interface of `parking_lot`.

use loom::sync::{Condvar, Mutex as Plain, MutexGuard};

#[derive(Default)]
pub(crate) struct Mutex<T>(Plain<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Plain::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// A read-write lock. As in `parking_lot`, a recursive read waits for a writer that holds the lock,
/// but not for one that waits for it.
pub(crate) struct RwLock<T> {
    holders: Plain<Holders>,
    changed: Condvar,
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
        Self { holders: Plain::default(), changed: Condvar::new(), _value: value }
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
    /// The checker chooses who gets the lock next.
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
