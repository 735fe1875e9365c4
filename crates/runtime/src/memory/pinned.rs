//! Host memory that the device reads and writes by itself.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::Result;

/// `len` elements of type `T` in pinned host memory: a slice whose pages stay where they are, so
/// that copies on a stream run while the host goes on.
///
/// Whoever enqueues a copy with [`crate::Stream::copy_to_device`] promises not to touch the slice
/// until the copy has run. Dropping it while a copy is in flight is caught: the memory is freed
/// after a wait for the context.
pub struct PinnedBuffer<T: Pod> {
    pages: Pages,
    data: *mut T,
    len: usize,
}

/// The allocation, apart from the typed view so that dropping needs no type.
struct Pages {
    context: Context,
    raw: *mut std::ffi::c_void,
}

// SAFETY: the memory is owned like that of a `Vec`, and the driver lets every thread use and free
// it.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: shared references only read.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Allocates `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// [`crate::Error::RefusedDuringCapture`], or a failed driver call.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        context.bind_outside_capture("allocating pinned memory")?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current, and the place is valid.
        unsafe { call!(context, cuMemHostAlloc(&mut raw, bytes, 0)) }?;
        // SAFETY: the driver has just given this many bytes to us.
        unsafe { std::ptr::write_bytes(raw.cast::<u8>(), 0, bytes) };
        let pages = Pages { context: context.clone(), raw };
        Ok(Self { pages, data: raw.cast(), len })
    }

    /// Allocates memory for `data` and copies it there.
    ///
    /// # Errors
    /// As [`PinnedBuffer::zeroed`].
    pub fn from_slice(context: &Context, data: &[T]) -> Result<Self> {
        let mut buffer = Self::zeroed(context, data.len())?;
        buffer.copy_from_slice(data);
        Ok(buffer)
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.pages.context
    }

    /// The same memory, to be shared with a graph that reads it.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the allocation has `len` initialized elements at page alignment.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl<T: Pod> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, data) = (std::any::type_name::<T>(), self.data);
        write!(f, "PinnedBuffer<{name}>({data:p}, {} elements)", self.len)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The address travels as a number, since raw pointers cannot be sent.
        let address = self.raw.expose_provenance();
        self.context.release(move |driver| {
            // SAFETY: nobody else has the memory, and the wait comes before the call that frees.
            unsafe {
                call!(driver, cuCtxSynchronize())?;
                call!(driver, cuMemFreeHost(std::ptr::with_exposed_provenance_mut(address)))
            }
        });
    }
}
