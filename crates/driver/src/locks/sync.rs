//! The locks of [`super::capture_lock`] under one name, so that a model checker can replace them.

pub(crate) use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
