//! The locks of [`super::flight`], in one place so that a model checker can replace them.

pub(crate) use parking_lot::{Condvar, Mutex};
