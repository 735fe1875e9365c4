//! Tests of the driver crate, on the simulated driver or on a GPU: see `device`.

mod broken_captures;
mod buffers;
mod capturing;
#[allow(dead_code, reason = "shared with the tests of `retrograph-runtime`")]
mod device;
mod disturbed_captures;
mod disturbers;
mod graphs;
mod lost_captures;
mod lost_context;
#[allow(dead_code, reason = "shared with the tests of `retrograph-runtime`")]
mod ptx;
mod scalars;
mod streams;
mod threads;
