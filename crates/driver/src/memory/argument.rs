//! Buffers as arguments of launches.

use bytemuck::Pod;

use super::device::DeviceBuffer;
use crate::launch::KernelArguments;

impl KernelArguments {
    /// Adds the address of a buffer, or of a [slice](DeviceBuffer::slice) of one, and keeps its
    /// memory alive. The owner belongs to these arguments, and to each graph with a launch of them.
    /// The memory is also safe to drop after an eager launch, since it is freed after the work in
    /// flight ([when memory is freed](crate::memory)); for borrowed memory, see
    /// [`DeviceBuffer::from_raw`].
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_driver::{
    ///     Context, DeviceBuffer, DeviceIndex, Driver, KernelArguments, Stream,
    /// };
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let stream = Stream::new(&context)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0])?;
    /// let last = x.slice(1..3)?;
    /// let arguments = KernelArguments::new().buffer(&x).buffer(&last);
    /// assert_eq!(arguments.bytes(1), (x.address() + 4).to_le_bytes());
    /// # }
    /// # Ok::<(), retrograph_driver::Error>(())
    /// ```
    pub fn buffer<T: Pod>(self, buffer: &DeviceBuffer<T>) -> Self {
        self.address(buffer.address()).keep(buffer.owner())
    }
}
