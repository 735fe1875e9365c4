//! Locks of the model checker `loom` with the interface of `parking_lot`.

use std::ops::{Deref, DerefMut};

use loom::sync::{Condvar as PlainCondvar, Mutex as Plain, MutexGuard as PlainGuard};

/// A mutex.
#[derive(Default)]
pub struct Mutex<T>(Plain<T>);

/// A guard that holds the lock, except while it waits for a [`Condvar`].
pub struct MutexGuard<'a, T>(Option<PlainGuard<'a, T>>);

/// A condition variable.
pub struct Condvar(PlainCondvar);

impl<T> Mutex<T> {
    /// Returns an unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(Plain::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
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
    /// Returns a condition variable without waiters.
    #[allow(clippy::new_without_default, reason = "`parking_lot` is called by `new`")]
    pub fn new() -> Self {
        Self(PlainCondvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A read-write lock. As in `parking_lot`, a recursive read waits for a writer that holds the lock,
/// but not for one that waits for it.
pub struct RwLock<T> {
    holders: Mutex<Holders>,
    changed: Condvar,
    _value: T,
}

#[derive(Default)]
struct Holders {
    readers: usize,
    writer: bool,
}

/// A guard that holds a read lock.
pub struct RwLockReadGuard<'a, T>(&'a RwLock<T>);

/// A guard that holds the write lock.
pub struct RwLockWriteGuard<'a, T>(&'a RwLock<T>);

impl<T> RwLock<T> {
    /// Returns an unlocked lock.
    pub fn new(value: T) -> Self {
        Self { holders: Mutex::default(), changed: Condvar::new(), _value: value }
    }

    /// Waits for a writer that holds the lock.
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        let mut holders = self.holders.lock();
        while holders.writer {
            self.changed.wait(&mut holders);
        }
        holders.readers += 1;
        RwLockReadGuard(self)
    }

    /// Like [`Self::read_recursive`]: the checker chooses whether a waiting writer comes first.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.read_recursive()
    }

    /// Waits until no thread holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut holders = self.holders.lock();
        while holders.writer || holders.readers > 0 {
            self.changed.wait(&mut holders);
        }
        holders.writer = true;
        RwLockWriteGuard(self)
    }

    fn change(&self, change: impl FnOnce(&mut Holders)) {
        change(&mut self.holders.lock());
        self.changed.notify_all();
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    /// Releases the lock. The checker chooses which thread gets it next.
    pub fn unlock_fair(guard: Self) {
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
