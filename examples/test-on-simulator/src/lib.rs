//! A library that computes on a GPU, and is tested without one.
//!
//! [`Histogram`] takes a [`Context`], so tests give it a simulated device.

use retrograph_driver::{
    Context, DeviceBuffer, Function, KernelArguments, KernelLaunch, LaunchGeometry, Module, Stream,
    error,
};

/// Counts bytes on the device.
pub struct Histogram {
    function: Function,
}

impl Histogram {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If the driver refuses the PTX.
    pub fn new(context: &Context) -> Result<Self, Box<dyn std::error::Error>> {
        let module = Module::load_ptx(context, include_str!("histogram.ptx"))?;
        Ok(Self { function: module.function("histogram")? })
    }

    /// The number of occurrences of each byte in `data`.
    ///
    /// # Errors
    /// If memory is exhausted, or the driver fails.
    pub fn count(&self, stream: &Stream, data: &[u8]) -> error::Result<Vec<u32>> {
        let counts = DeviceBuffer::<u32>::zeroed(stream.context(), 256)?;
        let bytes = DeviceBuffer::from_slice(stream, data)?;
        let n = data.len() as u32;
        let arguments = KernelArguments::new().buffer(&bytes).buffer(&counts).u32(n);
        let geometry = LaunchGeometry::linear(n.div_ceil(128).max(1), 128);
        let launch = KernelLaunch::new(&self.function, geometry, &arguments);
        // SAFETY: the arguments match the kernel, which reads `n` bytes and adds to 256 counts.
        // Both buffers outlive the wait in `download`.
        unsafe { stream.launch(&launch) }?;
        counts.download(stream)
    }
}
