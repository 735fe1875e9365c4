//! What the tests share, also with those of other packages. The files of
//! `retrograph-test-support`, which is not published, are linked here.

#![allow(dead_code, unreachable_pub, reason = "tests of other packages use the rest")]

pub(crate) mod device;
pub(crate) mod fatbin;
mod options;
pub(crate) mod ptx;
pub(crate) mod thread_safety;

pub(crate) use options::with;
