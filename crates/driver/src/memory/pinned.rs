//! Pinned host memory.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::Result;

/// The minimum page size, to which the driver aligns pinned memory.
const PAGE: usize = 4096;

/// `len` elements of type `T` in page-locked host memory, so that copies on a stream run
/// asynchronously.
///
/// A caller that enqueues a copy with [`Stream::memcpy_htod`](crate::Stream::memcpy_htod)
/// must not write the slice until the copy has finished. Dropping the buffer during a copy is safe:
/// freeing waits for the context.
///
/// Types with a larger alignment than a page do not compile:
///
/// ```
/// # use retrograph_driver::{Context, PinnedBuffer};
/// # fn page(context: &Context) -> retrograph_driver::Result<()> {
/// #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
/// #[repr(C, align(4096))]
/// struct Page([u8; 4096]);
/// PinnedBuffer::<Page>::zeroed(context, 1)?;
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0080
/// # use retrograph_driver::{Context, PinnedBuffer};
/// # fn pages(context: &Context) -> retrograph_driver::Result<()> {
/// #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
/// #[repr(C, align(8192))]
/// struct Pages([[u8; 4096]; 2]);
/// PinnedBuffer::<Pages>::zeroed(context, 1)?;
/// # Ok(())
/// # }
/// # // The compiler evaluates the check only for functions that it generates.
/// # fn main() { let _ = pages as fn(&Context) -> retrograph_driver::Result<()>; }
/// ```
pub struct PinnedBuffer<T: Pod> {
    pages: Pages,
    data: *mut T,
    len: usize,
}

/// The allocation without its element type, so that dropping needs no type.
struct Pages {
    context: Context,
    raw: *mut std::ffi::c_void,
}

// SAFETY: the memory is owned, as in a `Vec`, and any thread may use and free it.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: shared references only read.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Allocates `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// [`crate::Error::RefusedDuringCapture`], or a failed driver call.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= PAGE, "the driver aligns pinned memory to pages") };
        context.bind_outside_capture("allocating pinned memory")?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current, and the out pointer is valid.
        unsafe { call!(context, cuMemHostAlloc(&mut raw, bytes, 0)) }?;
        // SAFETY: the driver has just allocated this many bytes.
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

    /// Shares the memory with a graph that reads it.
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
        // As a number, since raw pointers are not `Send`.
        let address = self.raw.expose_provenance();
        self.context.release(move |driver| {
            // SAFETY: nobody else has the memory, and the wait precedes the free.
            unsafe {
                call!(driver, cuCtxSynchronize())?;
                call!(driver, cuMemFreeHost(std::ptr::with_exposed_provenance_mut(address)))
            }
        });
    }
}
