//! What the tests share, also with those of other packages. The files of
//! `retrograph-test-support`, which is not published, and of the tests of `retrograph-driver` are
//! linked here.

#![allow(unreachable_pub, unused, reason = "other tests use the rest")]

pub(crate) mod device;
pub(crate) mod fatbin;
pub(crate) mod numbers;
mod options;
pub(crate) mod ptx;
pub(crate) mod reference;
pub(crate) mod thread_safety;

pub(crate) use options::with;
