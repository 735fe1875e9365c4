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

/// Memory that all ranks of a communicator have made known to each other. A plain value, as
/// [`ncclComm_t`].
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ncclWindow_t(pub *mut c_void);

impl ncclWindow_t {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Whether the handle is null.
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Default for ncclWindow_t {
    fn default() -> Self {
        Self::NULL
    }
}

impl fmt::Debug for ncclWindow_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ncclWindow_t({:p})", self.0)
    }
}

// SAFETY: as for communicators.
unsafe impl Send for ncclWindow_t {}
// SAFETY: as for communicators.
unsafe impl Sync for ncclWindow_t {}

/// Of a window: all ranks register memory of the same size, and use it at the same offsets.
pub const NCCL_WIN_COLL_SYMMETRIC: i32 = 1;

/// Of [`NcclConfig::cta_policy`]: collectives run on copy engines where they can, and take no
/// multiprocessors there.
pub const NCCL_CTA_POLICY_ZERO: i32 = 2;

/// The configuration of a communicator: `ncclConfig_t` of NCCL 2.28, which later versions append
/// to and accept.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NcclConfig {
    /// Bytes of this structure.
    pub size: usize,
    /// [`NcclConfig::MAGIC`].
    pub magic: u32,
    /// [`NcclConfig::VERSION`].
    pub version: u32,
    /// Whether calls wait.
    pub blocking: i32,
    /// Blocks of a cluster.
    pub cga_cluster_size: i32,
    /// The fewest blocks of a collective.
    pub min_ctas: i32,
    /// The most blocks of a collective.
    pub max_ctas: i32,
    /// The network; null for any.
    pub net_name: *const c_char,
    /// Whether communicators split from this one share its resources.
    pub split_share: i32,
    /// The class of network traffic.
    pub traffic_class: i32,
    /// The name for logs and profilers; null for none.
    pub comm_name: *const c_char,
    /// Whether reductions in the network are used.
    pub collnet_enable: i32,
    /// How blocks are used, such as [`NCCL_CTA_POLICY_ZERO`].
    pub cta_policy: i32,
    /// Whether communicators shrunk from this one share its resources.
    pub shrink_share: i32,
    /// Blocks of collectives over NVLink SHARP.
    pub nvls_ctas: i32,
    /// Channels per peer over a network.
    pub n_channels_per_net_peer: i32,
    /// Whether launches are scheduled by the use of NVLink.
    pub nvlink_centric_sched: i32,
}

impl NcclConfig {
    /// The version of this configuration: 2.28.0.
    pub const VERSION: i32 = 22800;
    /// A value that NCCL chooses.
    pub const UNDEFINED: i32 = i32::MIN;
    /// The number by which NCCL knows an initialized configuration.
    pub const MAGIC: u32 = 0xcafe_beef;
}

impl Default for NcclConfig {
    /// NCCL chooses all values.
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: Self::MAGIC,
            version: Self::VERSION as u32,
            blocking: Self::UNDEFINED,
            cga_cluster_size: Self::UNDEFINED,
            min_ctas: Self::UNDEFINED,
            max_ctas: Self::UNDEFINED,
            net_name: std::ptr::null(),
            split_share: Self::UNDEFINED,
            traffic_class: Self::UNDEFINED,
            comm_name: std::ptr::null(),
            collnet_enable: Self::UNDEFINED,
            cta_policy: Self::UNDEFINED,
            shrink_share: Self::UNDEFINED,
            nvls_ctas: Self::UNDEFINED,
            n_channels_per_net_peer: Self::UNDEFINED,
            nvlink_centric_sched: Self::UNDEFINED,
        }
    }
}
