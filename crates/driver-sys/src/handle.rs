//! Opaque handles: one pointer-sized newtype for each kind of driver object.

use std::ffi::c_void;
use std::fmt;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// A plain value: copying it copies the handle, not the object, and dropping it destroys
        /// nothing.
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(std::ptr::null_mut());

            /// Whether the handle is null.
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }

        // SAFETY: the driver allows any thread to use any handle, and this crate never follows the
        // pointer. Further requirements of calls (a current context, no concurrent destruction) are
        // obligations of the unsafe call, not of owning the value.
        unsafe impl Send for $name {}
        // SAFETY: as above; a shared reference gives nothing but a copy of the value.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A context: the address space and the state of one process on one device.
    CUcontext;
    /// A loaded image.
    CUmodule;
    /// An entry point in a module.
    CUfunction;
    /// A library: a loaded image that is not bound to a context. Since driver 12000.
    CUlibrary;
    /// A kernel of a library that is not bound to a context. Since driver 12000.
    CUkernel;
    /// The state of a linker.
    CUlinkState;
    /// A stream: work in order.
    CUstream;
    /// An event: a point in a stream.
    CUevent;
    /// A graph template.
    CUgraph;
    /// A node of a graph template.
    CUgraphNode;
    /// An instantiated graph.
    CUgraphExec;
    /// A kernel node that kernels can change, as the device names it. Since driver 12040.
    CUgraphDeviceNode;
    /// A pool of stream-ordered memory.
    CUmemoryPool;
    /// A reference-counted object that graphs can hold.
    CUuserObject;
    /// A context on a part of a device. Since driver 12040.
    CUgreenCtx;
    /// A description of resources. Since driver 12040.
    CUdevResourceDesc;
    /// A semaphore of another API. No function of this crate creates one.
    CUexternalSemaphore;
    /// A CUDA array.
    CUarray;
}

impl CUstream {
    /// The legacy default stream, which synchronizes with every blocking stream.
    pub const LEGACY: Self = Self(std::ptr::without_provenance_mut(1));
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(std::ptr::without_provenance_mut(2));

    /// Whether this is the legacy default stream: its special handle, or null.
    pub fn is_legacy(self) -> bool {
        self.is_null() || self == Self::LEGACY
    }
}
