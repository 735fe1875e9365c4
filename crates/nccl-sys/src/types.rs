//! Types of nccl.h.

use std::ffi::{c_char, c_void};
use std::fmt;

/// Declares enumerations of nccl.h as transparent newtypes over their integer, so that a value of
/// a newer NCCL is a number and not undefined behaviour.
macro_rules! enumerations {
    ($(
        $(#[$doc:meta])*
        $name:ident: $integer:ty {
            $($(#[$constant_doc:meta])* $constant:ident = $value:literal;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $integer);

        impl $name {
            $(
                $(#[$constant_doc])*
                pub const $constant: Self = Self($value);
            )*
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($constant)),)*
                    other => write!(f, concat!(stringify!($name), "({})"), other),
                }
            }
        }
    )*};
}

enumerations! {
    /// The type of the elements of a collective.
    ncclDataType_t: u32 {
        /// 8-bit signed integers.
        ncclInt8 = 0;
        /// 8-bit unsigned integers.
        ncclUint8 = 1;
        /// 32-bit signed integers.
        ncclInt32 = 2;
        /// 32-bit unsigned integers.
        ncclUint32 = 3;
        /// 64-bit signed integers.
        ncclInt64 = 4;
        /// 64-bit unsigned integers.
        ncclUint64 = 5;
        /// f16.
        ncclFloat16 = 6;
        /// f32.
        ncclFloat32 = 7;
        /// f64.
        ncclFloat64 = 8;
        /// bf16.
        ncclBfloat16 = 9;
    }

    /// The operation of a reduction.
    ncclRedOp_t: u32 {
        /// The sum.
        ncclSum = 0;
        /// The product.
        ncclProd = 1;
        /// The largest value.
        ncclMax = 2;
        /// The smallest value.
        ncclMin = 3;
        /// The sum divided by the number of ranks.
        ncclAvg = 4;
    }
}

/// Bytes of a [`ncclUniqueId`].
pub const NCCL_UNIQUE_ID_BYTES: usize = 128;

/// The name of a communicator that is to be made. One rank gets it from `ncclGetUniqueId` and hands
/// it to all others.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ncclUniqueId {
    /// Opaque bytes.
    pub internal: [c_char; 128],
}

impl Default for ncclUniqueId {
    /// All bytes zero.
    fn default() -> Self {
        Self { internal: [0; NCCL_UNIQUE_ID_BYTES] }
    }
}

impl fmt::Debug for ncclUniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ncclUniqueId(…)")
    }
}

/// A communicator: one rank of a group of devices.
///
/// A plain value: copying it copies the name of the object, not the object, and nothing is
/// destroyed when it goes out of scope.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ncclComm_t(pub *mut c_void);

impl ncclComm_t {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Whether the handle is null.
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Default for ncclComm_t {
    fn default() -> Self {
        Self::NULL
    }
}

impl fmt::Debug for ncclComm_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ncclComm_t({:p})", self.0)
    }
}

// SAFETY: this crate never follows the pointer. Which threads may use a communicator, and when, is
// an obligation of the unsafe calls, not of owning the value.
unsafe impl Send for ncclComm_t {}
// SAFETY: as above; a shared reference gives nothing but a copy of the value.
unsafe impl Sync for ncclComm_t {}
