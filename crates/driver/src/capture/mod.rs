//! Stream capture: work enqueued on a stream becomes a graph instead of running.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_driver::{CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver, Stream};
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let buffer = DeviceBuffer::<f32>::zeroed(&context, 1024)?;
//! let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
//!     capturing.at("clear the gradients");
//!     capturing.keep(buffer.owner());
//!     // SAFETY: the range is in the buffer, which the graph keeps alive.
//!     unsafe { capturing.stream().memset_d32(buffer.address(), 0, 1024) }
//! })?;
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(buffer.download(&stream)?, [0.0; 1024]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Refused calls
//!
//! A capture is lost if its thread allocates, frees, waits, queries or loads a module meanwhile, on
//! any device. The safe functions of this crate refuse such calls with
//! [`Error::RefusedDuringCapture`](crate::Error::RefusedDuringCapture) before they reach the
//! driver, and release dropped objects after the capture has ended. Waiting for the whole context
//! breaks the captures of all threads, so while any thread captures in a context, no thread may
//! wait for it, and nothing is freed in it.
//!
//! Work that a thread enqueues on a stream that another thread captures becomes part of the graph,
//! and a wait for that stream breaks the capture. Safe functions refuse both on every thread; only
//! [`Event::record`](crate::Event::record) and [`Stream::wait`](crate::Stream::wait) add to a
//! capture. A safe call that enqueues or waits excludes captures in its context
//! ([`OutsideCapture`](crate::OutsideCapture)): other threads begin captures after it, and a thread
//! that begins one inside of such a call gets
//! [`Error::CaptureExcluded`](crate::Error::CaptureExcluded).
//!
//! Library calls can still break a capture. A lost capture accepts no more work: after the first
//! failure, enqueueing by its thread is refused on every stream with
//! [`Error::CaptureLost`](crate::Error::CaptureLost), because the driver might run the work at
//! once.
//!
//! # Recovery
//!
//! The first failing call returns the cause (900, 902–908); later calls and the end of the capture
//! return 901. If a capture fails, or its body returns an error or panics, then:
//!
//! 1. The capture is ended on its own stream and thread, and once more if the stream still
//!    captures.
//! 2. The returned graph is destroyed, and dropped objects are released.
//! 3. The stream is retired if it still captures; otherwise a wait tests whether it works.
//!
//! [`CaptureError`] carries the first failure, the code of the end and the outcome of the test.

mod capturing;
mod error;
mod frontier;
mod guard;
mod invalidation;
mod mode;
mod recover;
mod run;
pub(crate) mod window;

pub use capturing::Capturing;
pub use error::CaptureError;
pub use frontier::CapturedNodes;
pub use invalidation::{CaptureInvalidation, FirstFailure};
pub use mode::CaptureMode;
