//! Tests of the driver crate, on the simulated driver or on a GPU: see `device`.

mod arguments;
mod attributes;
mod borrowed_contexts;
mod broken_captures;
mod buffers;
mod captured_streams;
mod capturing;
mod disturbed_captures;
mod disturbers;
mod graphs;
mod lost_captures;
mod lost_context;
mod modules;
mod scalars;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod two_devices;

use support::{device, fatbin, ptx};
