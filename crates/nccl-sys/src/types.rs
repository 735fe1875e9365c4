//! Types of nccl.h.

use std::ffi::{c_char, c_void};
use std::fmt;

/// Declares enumerations of nccl.h as transparent newtypes over their integer, so that a value of
/// a newer NCCL is a number and not undefined behavior.
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

/// The unique id of a new communicator. One rank gets it from `ncclGetUniqueId` and sends it to all
/// others.
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

/// Declares handles of nccl.h, each a pointer that this crate never follows.
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

        // SAFETY: this crate never follows the pointer. Which threads may use the object, and when,
        // is an obligation of the unsafe calls, not of owning the value.
        unsafe impl Send for $name {}
        // SAFETY: as above; a shared reference gives nothing but a copy of the value.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A communicator: one rank of a group of devices.
    ncclComm_t;
    /// Memory that all ranks of a communicator have registered.
    ncclWindow_t;
}

/// A flag of `ncclCommWindowRegister`: all ranks register memory of the same size, and use it at
/// the same offsets.
pub const NCCL_WIN_COLL_SYMMETRIC: i32 = 1;

/// A value of [`ncclConfig_v22800::CTAPolicy`]: a collective uses no SMs if copy engines can run
/// it.
pub const NCCL_CTA_POLICY_ZERO: i32 = 2;

/// The value of a configuration field that NCCL chooses.
pub const NCCL_CONFIG_UNDEF_INT: i32 = i32::MIN;

/// The configuration of a communicator in NCCL 2.28. Later versions append fields, and accept it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclConfig_v22800 {
    /// Bytes of this configuration.
    pub size: usize,
    /// [`ncclConfig_v22800::MAGIC`].
    pub magic: u32,
    /// [`ncclConfig_v22800::VERSION`].
    pub version: u32,
    /// Whether calls block.
    pub blocking: i32,
    /// Blocks of a cluster.
    pub cgaClusterSize: i32,
    /// The minimum number of blocks of a collective.
    pub minCTAs: i32,
    /// The maximum number of blocks of a collective.
    pub maxCTAs: i32,
    /// The network; null for any.
    pub netName: *const c_char,
    /// Whether communicators split from this one share its resources.
    pub splitShare: i32,
    /// The class of network traffic.
    pub trafficClass: i32,
    /// The name for logs and profilers; null for none.
    pub commName: *const c_char,
    /// Whether reductions in the network are used.
    pub collnetEnable: i32,
    /// How blocks are used, such as [`NCCL_CTA_POLICY_ZERO`].
    pub CTAPolicy: i32,
    /// Whether communicators shrunk from this one share its resources.
    pub shrinkShare: i32,
    /// Blocks of collectives over NVLink SHARP.
    pub nvlsCTAs: i32,
    /// Channels per peer over a network.
    pub nChannelsPerNetPeer: i32,
    /// Whether launches use NVLink-centric scheduling.
    pub nvlinkCentricSched: i32,
}

impl ncclConfig_v22800 {
    /// The version of this configuration: 2.28.0.
    pub const VERSION: i32 = 22800;
    /// The magic number of an initialized configuration.
    pub const MAGIC: u32 = 0xcafe_beef;
}

impl Default for ncclConfig_v22800 {
    /// NCCL chooses all values.
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: Self::MAGIC,
            version: Self::VERSION as u32,
            blocking: NCCL_CONFIG_UNDEF_INT,
            cgaClusterSize: NCCL_CONFIG_UNDEF_INT,
            minCTAs: NCCL_CONFIG_UNDEF_INT,
            maxCTAs: NCCL_CONFIG_UNDEF_INT,
            netName: std::ptr::null(),
            splitShare: NCCL_CONFIG_UNDEF_INT,
            trafficClass: NCCL_CONFIG_UNDEF_INT,
            commName: std::ptr::null(),
            collnetEnable: NCCL_CONFIG_UNDEF_INT,
            CTAPolicy: NCCL_CONFIG_UNDEF_INT,
            shrinkShare: NCCL_CONFIG_UNDEF_INT,
            nvlsCTAs: NCCL_CONFIG_UNDEF_INT,
            nChannelsPerNetPeer: NCCL_CONFIG_UNDEF_INT,
            nvlinkCentricSched: NCCL_CONFIG_UNDEF_INT,
        }
    }
}
