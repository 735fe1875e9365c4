//! Arguments of driver calls in a form that safe code can use.
//!
//! The trampoline converts the arguments once. Its caller guarantees that pointers are valid as the
//! driver's documentation requires.

use std::ffi::{CStr, c_char, c_void};

use crate::refusal::{Refusal, Rule, invalid};
use retrograph_driver_sys::*;

/// The result of a call of the simulated driver: success, or the code to return.
pub(crate) type Call = Result<(), Refusal>;

/// A pointer to a result, null or valid for writing during the call.
pub(crate) struct Out<T>(*mut T);

/// A pointer to an input, null or valid for reading during the call.
pub(crate) struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

/// A raw argument that can be converted to a safe form.
pub(crate) trait Admit {
    /// The safe form.
    type Admitted;

    /// # Safety
    /// A pointer is null or valid, for the duration of the call, for as many elements as the call
    /// is documented to access.
    unsafe fn admit(self) -> Self::Admitted;
}

impl<T> Admit for *mut T {
    type Admitted = Out<T>;
    unsafe fn admit(self) -> Out<T> {
        Out(self)
    }
}

impl<T> Admit for *const T {
    type Admitted = In<T>;
    unsafe fn admit(self) -> In<T> {
        In(self)
    }
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        impl Admit for $type {
            type Admitted = Self;
            unsafe fn admit(self) -> Self {
                self
            }
        }
    )*};
}

plain! {
    u8, u16, i32, u32, u64, usize, f32, CUresult, CUcontext, CUmodule, CUfunction, CUstream,
    CUevent, CUgraph, CUgraphNode, CUgraphExec, CUlibrary, CUkernel, CUlinkState, CUmemoryPool,
    CUuserObject, CUgreenCtx, CUdevResourceDesc,
    CUdevice_attribute, CUdevice_P2PAttribute, CUlimit, CUfunc_cache, CUexecAffinityType,
    CUpointer_attribute, CUmem_advise, CUmem_range_attribute, CUmemPool_attribute, CUmemLocation,
    CUmemAllocationType, CUmemAllocationHandleType, CUmemAllocationGranularity_flags,
    CUmemRangeHandleType, CUfunction_attribute, CUjitInputType, CUlaunchAttributeID,
    CUgraphMem_attribute, CUstreamCaptureMode, CUhostFn, CUstreamCallback, CUoccupancyB2DSize,
    CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill, CUcoredumpSettings, CUdevResourceType, CUarray,
}

impl<T> Out<T> {
    /// A null pointer.
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// The address that the caller passed.
    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }

    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Fails if the pointer is null, before the call changes anything.
    pub(crate) fn require(self) -> Call {
        if self.is_null() { Err(invalid(Rule::Null)) } else { Ok(()) }
    }

    /// Writes a result. Fails if the pointer is null.
    pub(crate) fn write(self, value: T) -> Call {
        self.write_at(0, value)
    }

    /// Writes a result, unless the pointer is null.
    pub(crate) fn write_unless_null(self, value: T) {
        if !self.is_null() {
            // SAFETY: the pointer is valid for writing by the contract of `Admit`.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Writes the `index`-th element of a result, unless the pointer is null.
    pub(crate) fn write_at_unless_null(self, index: usize, value: T) {
        if !self.is_null() {
            // SAFETY: the pointer is valid for writing, for as many elements as the call documents,
            // by the contract of `Admit`.
            unsafe { self.0.add(index).write_unaligned(value) }
        }
    }

    /// Writes the `index`-th element of a result.
    pub(crate) fn write_at(self, index: usize, value: T) -> Call {
        if self.is_null() {
            return Err(invalid(Rule::Null));
        }
        // SAFETY: the pointer is valid for writing, for as many elements as the call documents, by
        // the contract of `Admit`.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// Reads a value that the caller passed in.
    pub(crate) fn get(self) -> Result<T, Refusal>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The same pointer with another element type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<c_void> {
    /// Reads bytes that the caller passed in.
    pub(crate) fn input_bytes(self, count: usize) -> Result<Vec<u8>, Refusal> {
        In(self.0.cast_const()).bytes(count)
    }
}

impl Out<*mut c_void> {
    /// The pointers that the caller passed in.
    pub(crate) fn values(self) -> In<*mut c_void> {
        In(self.0.cast_const())
    }
}

impl<T: Copy> Out<T> {
    /// The elements that the caller passed in.
    pub(crate) fn input(self) -> In<T> {
        In(self.0.cast_const())
    }
}

impl<T> In<T> {
    /// A null pointer.
    pub(crate) const NULL: Self = Self(std::ptr::null());

    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The input to which another input points, so that the contract of `Admit` holds for it, too.
    pub(crate) fn pointed_to(address: *const T) -> Self {
        Self(address)
    }
}

impl<T> In<T> {
    /// The same pointer with another element type.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    /// Reads the input.
    pub(crate) fn get(self) -> Result<T, Refusal> {
        self.get_at(0)
    }

    /// Reads the `index`-th element of the input.
    pub(crate) fn get_at(self, index: usize) -> Result<T, Refusal> {
        if self.0.is_null() {
            return Err(invalid(Rule::Null));
        }
        // SAFETY: the pointer is valid for reading, for as many elements as the call documents, by
        // the contract of `Admit`.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// Reads `count` elements. The pointer may be null if `count` is 0.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Refusal> {
        (0..count).map(|index| self.get_at(index)).collect()
    }
}

impl In<c_void> {
    /// The address that the caller passed.
    pub(crate) fn address(self) -> *const c_void {
        self.0
    }

    /// Reads `count` bytes.
    pub(crate) fn bytes(self, count: usize) -> Result<Vec<u8>, Refusal> {
        if self.0.is_null() && count > 0 {
            return Err(invalid(Rule::Null));
        }
        let mut bytes = vec![0; count];
        // SAFETY: the source is valid for `count` bytes by the contract of `Admit`, and the target
        // was just allocated with this length.
        unsafe { std::ptr::copy_nonoverlapping(self.0.cast(), bytes.as_mut_ptr(), count) };
        Ok(bytes)
    }

    /// The text that ends in a zero byte, converted lossily if it is not UTF-8.
    pub(crate) fn text(self) -> Result<String, Refusal> {
        In::<c_char>(self.0.cast()).text()
    }
}

impl In<c_char> {
    /// The text that ends in a zero byte, converted lossily if it is not UTF-8.
    pub(crate) fn text(self) -> Result<String, Refusal> {
        if self.0.is_null() {
            return Err(invalid(Rule::Null));
        }
        // SAFETY: text arguments end in a zero byte by the contract of `Admit`.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}
