//! The modules of `retrograph-test-support` that these tests need. The package has copies of them,
//! since that crate is not published.

#![allow(dead_code, unreachable_pub, reason = "tests of other packages use the rest")]

pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod reference;
