//! Tests of the runtime, on the simulated driver or on a GPU: see `device`.

mod analysis;
mod bound;
mod broken_libraries;
mod caching;
mod captured_steps;
mod collectives;
mod communicators;
mod cublas;
mod cublas_handles;
mod described;
mod executed;
mod failing_calls;
mod failing_programs;
mod failing_rebinds;
mod fallbacks;
mod faults;
mod green_contexts;
mod libraries;
mod mlp;
mod orders;
mod pdl;
mod pictures;
mod pools;
mod priorities;
mod profiles;
mod programs;
mod ptx;
mod ranks;
mod rebinding;
mod refusals;
mod sgemm_errors;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod threads;
mod two_devices;
mod warm;
mod warm_bundles;
mod warm_disk;
mod warm_entries;
mod warm_places;
mod warm_workers;

use support::device;
