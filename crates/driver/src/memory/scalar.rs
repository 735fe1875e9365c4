//! Scalars in device memory that the host changes between replays.

use bytemuck::Pod;

use super::device::DeviceBuffer;
use super::staging::Staging;
use crate::error::Result;
use crate::owner::Owner;
use crate::stream::Stream;

/// One value in device memory, which kernels read and the host sets between launches.
///
/// A kernel argument is baked into its graph node. A kernel that reads a scalar sees the value that
/// was set last: [`DeviceScalar::set`] enqueues a copy on the scalar's stream without waiting, so
/// work enqueued before reads the old value and work enqueued later the new one. Each value in
/// flight has its own pinned memory; if the host is several values ahead of the device, setting
/// waits for the oldest.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_driver::{
///     CaptureMode, Context, DeviceBuffer, DeviceIndex, DeviceScalar, Driver, Stream,
/// };
///
/// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
/// let stream = Stream::new(&context)?;
/// let mut rate = DeviceScalar::new(&stream, 0.5_f32)?;
/// let seen = DeviceBuffer::<f32>::zeroed(&context, 1)?;
/// let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
///     capturing.keep(rate.owner());
///     capturing.keep(seen.owner());
///     // SAFETY: both hold one value, and the graph keeps them alive.
///     unsafe { capturing.stream().memcpy_dtod(seen.address(), rate.address(), 4) }
/// })?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// rate.set(0.25)?; // After the first replay, before the second.
/// exec.launch(&stream)?;
/// assert_eq!(seen.download(&stream)?, [0.25]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceScalar<T: Pod> {
    stream: Stream,
    buffer: DeviceBuffer<T>,
    staging: Staging,
    value: T,
}

impl<T: Pod> DeviceScalar<T> {
    /// Allocates the scalar and sets it to `value`. Launches that read it run on `stream`.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_slice`].
    pub fn new(stream: &Stream, value: T) -> Result<Self> {
        let buffer = DeviceBuffer::from_slice(stream, &[value])?;
        let staging = Staging::new(stream.context(), size_of::<T>())?;
        Ok(Self { stream: stream.clone(), buffer, staging, value })
    }

    /// Sets the value for work that is enqueued on the scalar's stream later.
    ///
    /// # Errors
    /// [`crate::Error::RefusedDuringCapture`] if any thread captures the stream, since a captured
    /// copy would set the same value in every replay; or a failed driver call. The value is then
    /// unchanged.
    pub fn set(&mut self, value: T) -> Result<()> {
        let outside = self.stream.outside_capture("setting a device scalar")?;
        let bytes = bytemuck::bytes_of(&value);
        // SAFETY: the buffer holds one value. Like the pinned memory, it is freed only after a wait
        // for the context.
        unsafe { self.staging.upload(&outside, self.buffer.address(), bytes) }?;
        self.value = value;
        Ok(())
    }

    /// The value set last, whether or not it has reached the device.
    pub fn value(&self) -> T {
        self.value
    }

    /// The stream on which values are set.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The memory, a buffer of one element.
    pub fn buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// The device address.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Keeps the memory alive, for graphs that read it.
    pub fn owner(&self) -> Owner {
        self.buffer.owner()
    }
}
