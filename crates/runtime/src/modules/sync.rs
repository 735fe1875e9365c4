//! The locks of [`super::flight`] under one name, so that a model checker can replace them.

pub(crate) use parking_lot::{Condvar, Mutex};
