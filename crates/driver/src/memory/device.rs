//! Buffers in device memory.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use retrograph_driver_sys::CUdeviceptr;

use super::NAN_PATTERN;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::stream::Stream;

/// `len` elements of type `T` in device memory. Clones share the memory.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_driver::{Context, DeviceBuffer, DeviceIndex, Driver, Stream};
///
/// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
/// let stream = Stream::new(&context)?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0])?;
/// assert_eq!(buffer.download(&stream)?, [1.0, 2.0, 3.0]);
/// # }
/// # Ok::<(), retrograph_driver::Error>(())
/// ```
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

struct Allocation {
    context: Context,
    address: CUdeviceptr,
    /// Returns the memory to its pool, or to another library, when dropped; `None` for memory
    /// allocated from the driver.
    owner: Option<Owner>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `len` elements of arbitrary content (NaN in debug builds).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn uninit(context: &Context, len: usize) -> Result<Self> {
        let buffer = Self::allocate(context, len)?;
        if cfg!(debug_assertions) {
            buffer.fill(NAN_PATTERN)?;
        }
        Ok(buffer)
    }

    /// Allocates `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`].
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        let buffer = Self::allocate(context, len)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Allocates memory for `data` and uploads it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`].
    pub fn from_slice(stream: &Stream, data: &[T]) -> Result<Self> {
        let buffer = Self::allocate(stream.context(), data.len())?;
        buffer.upload(stream, data)?;
        Ok(buffer)
    }

    fn allocate(context: &Context, len: usize) -> Result<Self> {
        context.bind_outside_capture("allocating device memory")?;
        let requested = len.saturating_mul(size_of::<T>());
        let mut address = 0;
        let bytes = allocated_bytes(requested);
        // SAFETY: the context is current, and the out pointer is valid.
        let outcome = unsafe { call!(context, cuMemAlloc_v2(&mut address, bytes)) };
        outcome.map_err(|error| explain(context, error, requested))?;
        let allocation = Arc::new(Allocation { context: context.clone(), address, owner: None });
        Ok(Self { allocation, len, element: PhantomData })
    }

    /// A buffer over memory of another library, such as a tensor of cudarc or candle: `len`
    /// elements from `address`. The buffer and its users, such as a graph, hold `owner`; dropping
    /// the last of them drops `owner` and frees nothing else.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use std::sync::Arc;
    ///
    /// use retrograph_driver::{Context, DeviceBuffer, DeviceIndex, Driver, Stream};
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let stream = Stream::new(&context)?;
    /// let theirs = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0])?;
    /// let (address, len) = (theirs.address(), theirs.len());
    /// let owner = Arc::new(theirs);
    /// // SAFETY: the memory lives as long as its owner, and no other work uses it.
    /// let ours = unsafe { DeviceBuffer::<f32>::from_raw(&context, address, len, owner) };
    /// assert_eq!(ours.download(&stream)?, [1.0, 2.0, 3.0]);
    /// # }
    /// # Ok::<(), retrograph_driver::Error>(())
    /// ```
    ///
    /// # Safety
    /// The range must be in one allocation on the device of `context` that stays valid until
    /// `owner` is dropped, and `address` must be a multiple of the size of `T`. Kernels of
    /// `retrograph-kernels` need a multiple of 16, which programs of `retrograph-runtime` check.
    ///
    /// Work that accesses the memory, here and in the other library, must be ordered by streams,
    /// events or waits. If dropping `owner` does not wait for work on other streams, as
    /// `cuMemFreeAsync` does not, wait for the work on this buffer before the last holder is
    /// dropped.
    pub unsafe fn from_raw(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        owner: Owner,
    ) -> Self {
        Self::owned_by(context, address, len, owner)
    }

    fn owned_by(context: &Context, address: CUdeviceptr, len: usize, owner: Owner) -> Self {
        let context = context.clone();
        let allocation = Arc::new(Allocation { context, address, owner: Some(owner) });
        Self { allocation, len, element: PhantomData }
    }

    /// A buffer of `len` elements at `address` in a pool. Dropping `pooled` returns the memory to
    /// the pool. The buffer is filled with `pattern`, if given.
    pub(super) fn pooled(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        pooled: Owner,
        pattern: Option<u32>,
    ) -> Result<Self> {
        let buffer = Self::owned_by(context, address, len, pooled);
        pattern.map_or(Ok(()), |pattern| buffer.fill(pattern))?;
        Ok(buffer)
    }

    /// Fills the whole allocation and waits, so that the content is visible to every stream.
    fn fill(&self, pattern: u32) -> Result<()> {
        let (context, address) = (self.context(), self.address());
        let words = allocated_bytes(self.bytes()) / 4;
        let service = context.service();
        context.bind_outside_capture("filling device memory")?;
        // SAFETY: the allocation has this many words, and the stream lives as long as its context.
        unsafe {
            call!(context, cuMemsetD32Async(address, pattern, words, service))?;
            call!(context, cuStreamSynchronize(service))
        }
    }

    /// Copies `data` into the buffer in stream order, and waits.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] unless `data` has the buffer's length,
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn upload(&self, stream: &Stream, data: &[T]) -> Result<()> {
        check_length("upload", self.len, data.len())?;
        self.upload_at(stream, 0, data)
    }

    /// Copies `data` to the elements from `start` in stream order, and waits.
    ///
    /// # Errors
    /// As [`DeviceBuffer::upload`].
    pub fn upload_at(&self, stream: &Stream, start: usize, data: &[T]) -> Result<()> {
        let range = start..start.saturating_add(data.len());
        let address = self.checked_address("upload", &range)?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        self.context().same(stream.context(), "the stream")?;
        // Held until the copy has finished, so that the wait is not refused.
        let stream = stream.outside_capture("uploading")?;
        if !bytes.is_empty() {
            // SAFETY: the range is in the allocation, and `data` outlives the wait.
            unsafe { stream.memcpy_htod(address, bytes.as_ptr(), bytes.len()) }?;
        }
        stream.synchronize()
    }

    /// Copies all elements to the host in stream order, and waits.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn download(&self, stream: &Stream) -> Result<Vec<T>> {
        self.download_range(stream, 0..self.len)
    }

    /// Copies the elements `range` to the host in stream order, and waits.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] for a range outside the buffer, or as [`DeviceBuffer::download`].
    pub fn download_range(&self, stream: &Stream, range: Range<usize>) -> Result<Vec<T>> {
        let address = self.checked_address("download", &range)?;
        self.context().same(stream.context(), "the stream")?;
        // Held until the copy has finished, so that the wait is not refused.
        let stream = stream.outside_capture("downloading")?;
        let mut data = vec![T::zeroed(); range.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data);
        if !bytes.is_empty() {
            // SAFETY: the range is in the allocation, and `data` outlives the wait.
            unsafe { stream.memcpy_dtoh(bytes.as_mut_ptr(), address, bytes.len()) }?;
        }
        stream.synchronize()?;
        Ok(data)
    }

    /// The elements `range` as a buffer that shares the memory and keeps all of it alive.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`].
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let address = self.checked_address("slice", &range)?;
        Ok(Self::owned_by(self.context(), address, range.len(), self.owner()))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the elements in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device address of the first element.
    pub fn address(&self) -> CUdeviceptr {
        self.allocation.address
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.allocation.context
    }

    /// Keeps the memory alive, for graphs that access it.
    pub fn owner(&self) -> Owner {
        self.allocation.clone()
    }

    /// The address of the elements `range`; fails if they are not in the buffer.
    fn checked_address(&self, what: &'static str, range: &Range<usize>) -> Result<CUdeviceptr> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::OutsideBuffer { what, range: range.clone(), len: self.len });
        }
        Ok(self.address() + (range.start * size_of::<T>()) as u64)
    }
}

impl<T> Clone for DeviceBuffer<T> {
    fn clone(&self) -> Self {
        let allocation = self.allocation.clone();
        Self { allocation, len: self.len, element: PhantomData }
    }
}

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, address) = (std::any::type_name::<T>(), self.allocation.address);
        write!(f, "DeviceBuffer<{name}>({address:#x}, {} elements)", self.len)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        let address = self.address;
        // SAFETY: no clone of the buffer is left, and the call waits for work in the context.
        self.context.release(move |driver| unsafe { call!(driver, cuMemFree_v2(address)) });
    }
}

/// Rounds up to whole words, at least one, because the driver refuses empty allocations.
pub(super) fn allocated_bytes(requested: usize) -> usize {
    requested.checked_next_multiple_of(4).unwrap_or(requested).max(4)
}

fn check_length(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::LengthMismatch { what, expected, found }) }
}

/// Adds the free and total memory to an out-of-memory error.
fn explain(context: &Context, error: Error, requested: usize) -> Error {
    let out_of_memory = error.call().is_some_and(|call| call.is_out_of_memory());
    match (out_of_memory, context.mem_get_info()) {
        (true, Ok((free, total))) => Error::OutOfMemory { requested, free, total },
        _ => error,
    }
}
