//! Helpers of tests; `retrograph-runtime` links to some of them. `device.rs` and `options.rs` are
//! links to `retrograph-test-support`, which is not published.

#![allow(dead_code, unreachable_pub, reason = "tests of other packages use the rest")]

pub(crate) mod device;
pub(crate) mod fatbin;
mod options;
pub(crate) mod ptx;
pub(crate) mod thread_safety;

pub(crate) use options::with;
