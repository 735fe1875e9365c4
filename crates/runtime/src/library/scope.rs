//! What a library call is given each time that it enqueues its work.

use retrograph_driver::{Context, Result, Stream};
use retrograph_driver_sys::CUresult;

/// Bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// The address of the first one.
    pub address: u64,
    /// How many.
    pub bytes: usize,
}

/// The stream to enqueue on, and where the declared ranges lie.
///
/// The work may use other streams too, if it makes them wait for an event of this one first and
/// lets this one wait for them at the end; that is what makes it one operation, eager or captured.
pub struct LibraryScope<'a> {
    stream: &'a Stream,
    ranges: &'a [DeviceRange],
}

impl<'a> LibraryScope<'a> {
    pub(crate) fn new(stream: &'a Stream, ranges: &'a [DeviceRange]) -> Self {
        Self { stream, ranges }
    }

    /// The stream, which captures while a graph is built.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The context, which is current.
    pub fn context(&self) -> &'a Context {
        self.stream.context()
    }

    /// Where the range that was declared as the `at`-th lies, from 0.
    ///
    /// # Panics
    /// When fewer were declared, as slices do.
    pub fn range(&self, at: usize) -> DeviceRange {
        self.ranges[at]
    }

    /// RingCounter the code of the driver function `call` into a result. In a capture the first failure
    /// that passes through here is the one that is reported as the cause.
    ///
    /// # Errors
    /// When `code` is no success.
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        self.context().check(call, code)
    }
}
