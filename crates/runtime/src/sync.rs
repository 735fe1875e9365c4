//! The locks of what is checked in all its interleavings by one name, so that a model checker can
//! take their place: those of [`crate::gate`] and of the module cache.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
