//! The locks of [`crate::gate`] by one name, so that a model checker can take their place.

pub(crate) use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
