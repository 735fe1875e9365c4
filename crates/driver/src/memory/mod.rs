//! Device memory and pinned host memory.
//!
//! # When memory is freed
//!
//! Device memory is freed when the last clone of its [`DeviceBuffer`] is dropped, by `cuMemFree`,
//! which waits for the work in the context, so work enqueued before may still use it. A graph keeps
//! the buffers among the arguments of its launches
//! ([`KernelArguments::buffer`](crate::KernelArguments::buffer)) and other owners given to it, and
//! drops them after its last launch has finished. During a capture, freeing is deferred to its end.
//!
//! A [`MemoryPool`] hands out parts of one allocation and takes them back without driver calls.
//!
//! # Content of new memory
//!
//! [`DeviceBuffer::uninit`] returns memory with arbitrary content. Debug builds fill it with
//! [`NAN_PATTERN`], so that reading a value that was never written yields a NaN instead of a lucky
//! zero.

mod argument;
mod device;
mod gaps;
mod pinned;
mod pool;
mod scalar;
mod staging;

pub use device::DeviceBuffer;
pub use pinned::PinnedBuffer;
pub use pool::{MemoryPool, PoolSeal, PoolUse};
pub use scalar::DeviceScalar;
pub use staging::Staging;

/// The pattern with which debug builds fill new device memory: a quiet NaN as f32 and as f64, and
/// an out-of-range token as u32.
pub const NAN_PATTERN: u32 = 0x7FD0_5A5A;
