//! Single values that the host changes between replays.

use retrograph_kernels::Element;

use super::{DeviceBuffer, Staging};
use crate::Owner;
use crate::error::Result;
use crate::stream::Stream;

/// One value in device memory, which kernels read and the host sets between launches.
///
/// A value that is passed to a kernel by value is part of the node, and stays what it was when the
/// graph was made. A kernel that reads a scalar sees what was set last: [`DeviceScalar::set`]
/// enqueues a copy on the scalar's stream and does not wait, so that whatever is enqueued there
/// before reads the old value, and whatever is enqueued later the new one. Each value in flight has
/// pinned memory of its own, hence a later one never overtakes it; when the host is several values
/// ahead of the device, setting waits for the oldest.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_runtime::{
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
///     // SAFETY: both hold one value, and the graph keeps them.
///     unsafe { capturing.stream().copy_on_device(seen.address(), rate.address(), 4) }
/// })?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// rate.set(0.25)?; // Behind the first replay, in front of the second.
/// exec.launch(&stream)?;
/// assert_eq!(seen.download(&stream)?, [0.25]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Absent on purpose: setting it on another stream than its own, where the order of values and
/// replays would be left to chance. Values of a pass are declared as controls instead
/// ([`crate::Pass::control`]).
#[derive(Debug)]
pub struct DeviceScalar<T: Element> {
    stream: Stream,
    buffer: DeviceBuffer<T>,
    staging: Staging,
    value: T,
}

impl<T: Element> DeviceScalar<T> {
    /// Allocates the scalar and sets it to `value`. `stream` is that of the launches that read it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_slice`].
    pub fn new(stream: &Stream, value: T) -> Result<Self> {
        let buffer = DeviceBuffer::from_slice(stream, &[value])?;
        let staging = Staging::new(stream.context(), size_of::<T>())?;
        Ok(Self { stream: stream.clone(), buffer, staging, value })
    }

    /// Enqueues `value` for everything that is enqueued on the scalar's stream from now on.
    ///
    /// # Errors
    /// [`crate::Error::RefusedDuringCapture`], since a captured copy would give every replay the
    /// same value; or a failed driver call, after which the value is the old one.
    pub fn set(&mut self, value: T) -> Result<()> {
        self.stream.bind_outside_capture("setting a device scalar")?;
        let bytes = bytemuck::bytes_of(&value);
        // SAFETY: the buffer has room for one value. It is freed only after a wait for the context,
        // and so is the pinned memory.
        unsafe { self.staging.upload(&self.stream, self.buffer.address(), bytes) }?;
        self.value = value;
        Ok(())
    }

    /// The value that was set last, whether or not it has reached the device.
    pub fn value(&self) -> T {
        self.value
    }

    /// The stream on which values are set.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The memory: a buffer of one element, to be bound or viewed like any other.
    pub fn buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// The device address.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// What keeps the memory alive, for graphs that read it.
    pub fn owner(&self) -> Owner {
        self.buffer.owner()
    }
}
