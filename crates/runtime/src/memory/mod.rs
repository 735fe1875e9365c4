//! Device and pinned memory, and the driver's own share of device memory.

mod driver_overhead;

pub use driver_overhead::{DriverOverhead, GRAPH_NODE_BYTES, IMAGE_BYTES, PAGE_BYTES};
pub use retrograph_driver::memory::*;
