//! Helpers of tests. They are links to the tests of `retrograph-driver`, and to
//! `retrograph-test-support`, which is not published.

#![allow(unreachable_pub, unused, reason = "other tests use the rest")]

pub(crate) mod device;
pub(crate) mod fatbin;
pub(crate) mod numbers;
mod options;
pub(crate) mod ptx;
pub(crate) mod reference;
pub(crate) mod thread_safety;

pub(crate) use options::with;
