//! Devices and the links between them.

mod attribute;

use crate::enumeration::{enumerations, flags};
use crate::structure::structures;

pub use attribute::CUdevice_attribute;
pub(crate) use attribute::ENUMERATIONS as ATTRIBUTES;

/// The ordinal of a device as the driver numbers it.
pub type CUdevice = i32;

flags! {
    /// Special values that are not devices.
    CUdevice_special: i32 {
        /// The host.
        CU_DEVICE_CPU = -1;
        /// None.
        CU_DEVICE_INVALID = -2;
    }
}

structures! {
    /// The identity of a device across processes and reboots.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CUuuid {
        /// The sixteen bytes.
        pub bytes: [u8; 16],
    }
}

enumerations! {
    /// The compute mode: which processes may create contexts on a device.
    CUcomputemode: u32 {
        /// Every process.
        CU_COMPUTEMODE_DEFAULT = 0;
        /// No process.
        CU_COMPUTEMODE_PROHIBITED = 2;
        /// One process at a time.
        CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3;
    }

    /// The NUMA configuration of a device.
    CUdeviceNumaConfig: u32 {
        /// Not a NUMA node.
        CU_DEVICE_NUMA_CONFIG_NONE = 0 since 12020;
        /// Its memory is a NUMA node.
        CU_DEVICE_NUMA_CONFIG_NUMA_NODE = 1 since 12020;
    }

    /// Attributes of `cuDeviceGetP2PAttribute`.
    CUdevice_P2PAttribute: u32 {
        /// The performance rank of the link: 0 is the fastest of the system.
        CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1;
        /// Whether memory of the other device can be accessed.
        CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2;
        /// Whether atomic operations over the link are native.
        CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3;
        /// Older name of `CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED`.
        CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED = 4;
        /// Whether arrays on the other device can be accessed.
        CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED = 4;
        /// Whether only some atomic operations over the link are native.
        CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED = 5 since 13000;
    }

    /// An atomic operation, for capability queries.
    CUatomicOperation: u32 {
        /// Integer addition.
        CU_ATOMIC_OPERATION_INTEGER_ADD = 0 since 13000;
        /// Integer minimum.
        CU_ATOMIC_OPERATION_INTEGER_MIN = 1 since 13000;
        /// Integer maximum.
        CU_ATOMIC_OPERATION_INTEGER_MAX = 2 since 13000;
        /// Increment that wraps at a bound.
        CU_ATOMIC_OPERATION_INTEGER_INCREMENT = 3 since 13000;
        /// Decrement that wraps at a bound.
        CU_ATOMIC_OPERATION_INTEGER_DECREMENT = 4 since 13000;
        /// Bitwise and.
        CU_ATOMIC_OPERATION_AND = 5 since 13000;
        /// Bitwise or.
        CU_ATOMIC_OPERATION_OR = 6 since 13000;
        /// Bitwise exclusive or.
        CU_ATOMIC_OPERATION_XOR = 7 since 13000;
        /// Exchange.
        CU_ATOMIC_OPERATION_EXCHANGE = 8 since 13000;
        /// Compare and swap.
        CU_ATOMIC_OPERATION_CAS = 9 since 13000;
        /// Addition of floats.
        CU_ATOMIC_OPERATION_FLOAT_ADD = 10 since 13000;
        /// Minimum of floats.
        CU_ATOMIC_OPERATION_FLOAT_MIN = 11 since 13000;
        /// Maximum of floats.
        CU_ATOMIC_OPERATION_FLOAT_MAX = 12 since 13000;
    }
}
