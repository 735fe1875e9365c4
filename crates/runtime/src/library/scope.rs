//! The stream and memory of a library call.

use retrograph_driver::{Context, Result, Stream};
use retrograph_driver_sys::CUresult;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// The start address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: usize,
}

/// The stream to enqueue on, and the addresses of the declared ranges.
///
/// The work may use other streams if they first wait for an event of this one, and this one finally
/// waits for them.
pub struct LibraryScope<'a> {
    stream: &'a Stream,
    ranges: &'a [DeviceRange],
}

impl<'a> LibraryScope<'a> {
    pub(crate) fn new(stream: &'a Stream, ranges: &'a [DeviceRange]) -> Self {
        Self { stream, ranges }
    }

    /// The stream, which is captured while a graph is built.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The context, which is current.
    pub fn context(&self) -> &'a Context {
        self.stream.context()
    }

    /// The declared range at position `at`.
    ///
    /// # Panics
    /// If fewer ranges were declared.
    pub fn range(&self, at: usize) -> DeviceRange {
        self.ranges[at]
    }

    /// Converts the code of the driver function `call` into a result. In a capture, the first
    /// failure that passes through here is reported as the cause.
    ///
    /// # Errors
    /// Unless `code` is success.
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        self.context().check(call, code)
    }
}
