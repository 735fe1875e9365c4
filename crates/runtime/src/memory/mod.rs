//! Device memory and pinned host memory.
//!
//! # When memory is freed
//!
//! Device memory is freed when the last clone of its [`DeviceBuffer`] is dropped, by `cuMemFree`,
//! which waits for the work in the context. Work that was enqueued before may therefore still use
//! it; work enqueued later has nothing left to name it by. A graph keeps clones of the buffers that
//! its nodes touch, and drops them after its last launch has run. While a capture could
//! be broken by it, freeing is put off until the capture has ended.
//!
//! A [`MemoryPool`] gives out parts of one allocation instead, and takes them back without a call
//! of the driver: see there for when a part is used again.
//!
//! # What fresh memory holds
//!
//! [`DeviceBuffer::uninit`] gives memory with arbitrary content. Debug builds fill it with
//! [`NAN_PATTERN`], so that a value that was never written shows as a NaN and not as a lucky zero.

mod device;
mod driver_share;
mod gaps;
mod pinned;
mod pool;
mod ring;
mod scalar;
mod staging;
mod turns;

pub use device::DeviceBuffer;
pub use driver_share::{DriverShare, GRAPH_NODE_BYTES, IMAGE_BYTES, PAGE_BYTES};
pub use pinned::PinnedBuffer;
pub use pool::{MemoryPool, PoolSeal, PoolUse};
pub use scalar::DeviceScalar;

pub(crate) use ring::ControlRing;
pub(crate) use staging::Staging;

/// What debug builds fill fresh device memory with: a quiet NaN as f32 and as f64, and a token that
/// is out of range as u32.
pub const NAN_PATTERN: u32 = 0x7FD0_5A5A;
