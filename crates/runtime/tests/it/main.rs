//! Tests of the runtime, on the simulated driver or on a GPU: see `device`.

mod analysis;
mod bound;
mod broken_libraries;
mod caching;
mod cublas;
mod cublas_handles;
mod described;
#[path = "../../../driver/tests/it/device.rs"]
#[allow(dead_code, reason = "shared with the tests of `retrograph-driver`")]
mod device;
mod executed;
mod failing_calls;
mod failing_programs;
mod failing_rebinds;
mod fallbacks;
mod faults;
#[path = "../../../driver/tests/it/ptx.rs"]
#[allow(dead_code, reason = "shared with the tests of `retrograph-driver`")]
mod images;
mod libraries;
mod mlp;
mod orders;
mod pdl;
mod pictures;
mod pools;
mod profiles;
mod programs;
mod ptx;
mod rebinding;
mod refusals;
mod soak;
mod tally;
mod threads;
mod two_devices;
mod urgency;
mod warm;
mod warm_bundles;
mod warm_disk;
mod warm_entries;
mod warm_places;
mod warm_workers;
