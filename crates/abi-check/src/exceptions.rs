//! Intended differences, with reasons.

use crate::compare::Difference;

/// An intended difference.
pub struct Exception {
    /// Part of the name of the source.
    pub source: &'static str,
    /// The item: all of `value of X`, or `X`.
    pub item: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// The exceptions of nccl-sys. One that excuses nothing fails the test.
pub const NCCL: &[Exception] = &[
    Exception {
        source: "nccl.h",
        item: "signature of ncclCommInitRankConfig",
        reason: "the configuration grows with each version: the pointer is to `void`",
    },
    Exception {
        source: "nccl.h",
        item: "type ncclConfig_v22800",
        reason: "the configuration of NCCL 2.28, which later versions accept",
    },
    Exception {
        source: "nccl.h 2.18.3",
        item: "type ncclWindow_t",
        reason: "a type since NCCL 2.27",
    },
    Exception {
        source: "nccl.h 2.18.3",
        item: "NCCL_WIN_COLL_SYMMETRIC",
        reason: "a constant since NCCL 2.27",
    },
    Exception {
        source: "nccl.h 2.18.3",
        item: "NCCL_CTA_POLICY_ZERO",
        reason: "a constant since NCCL 2.28",
    },
];

/// The exceptions of driver-sys. One that excuses nothing fails the test.
pub const DRIVER: &[Exception] = &[
    Exception {
        source: "cuda.h 12.9",
        item: "type CUatomicOperation",
        reason: "a type since CUDA 13.0",
    },
    Exception {
        source: "cuda.h 12.9",
        item: "CUdevSmResource.minSmPartitionSize",
        reason: "a field since CUDA 13.0, inside of a union that did not grow",
    },
    Exception {
        source: "cuda.h 12.9",
        item: "CUdevSmResource.smCoscheduledAlignment",
        reason: "a field since CUDA 13.0, inside of a union that did not grow",
    },
    Exception {
        source: "cuda.h 12.9",
        item: "size of CUdevSmResource",
        reason: "CUDA 13.0 added two fields, inside of a union that did not grow",
    },
    Exception {
        source: "cuda.h 12.9",
        item: "CUlaunchAttributeValue.nvlinkUtilCentricScheduling",
        reason: "a member since CUDA 13.0, of a union that did not grow",
    },
    Exception {
        source: "cuda.h 12.9",
        item: "alignment of CUtensorMap",
        reason: "64 bytes before CUDA 13.0, which are too few for its headers",
    },
    Exception {
        source: "by bindgen",
        item: "type of CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2.paramsArray",
        reason: "driver-sys has no parameters of external semaphores: the pointer is to `void`",
    },
    Exception {
        source: "by bindgen",
        item: "type of CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2.paramsArray",
        reason: "driver-sys has no parameters of external semaphores: the pointer is to `void`",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "CUmemAllocationProp.reserved",
        reason: "CUDA 11 made fields of the first reserved bytes",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "value of CU_CTX_FLAGS_MASK",
        reason: "CUDA 12 added flags",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "value of CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS",
        reason: "CUDA 12 gave the name to another attribute; the old attribute ends in `_V1` now",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "value of CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR",
        reason: "CUDA 12 gave the name to another attribute; the old attribute ends in `_V1` now",
    },
    Exception {
        source: "cuda-driver-sys",
        item: "size of CUDA_KERNEL_NODE_PARAMS",
        reason: "CUDA 12.0 appended two fields, for the `_v2` functions that driver-sys calls",
    },
];

impl Exception {
    /// Whether this exception excuses the difference.
    pub fn excuses(&self, difference: &Difference) -> bool {
        let about = difference.item.split_once(" of ").map(|(_, about)| about);
        let item = difference.item == self.item || about == Some(self.item);
        item && difference.source.contains(self.source)
    }
}

/// The differences without one of these exceptions, and the unused exceptions.
pub fn apply(
    exceptions: &'static [Exception],
    differences: Vec<Difference>,
) -> (Vec<Difference>, Vec<&'static Exception>) {
    let idle = exceptions
        .iter()
        .filter(|exception| !differences.iter().any(|difference| exception.excuses(difference)));
    let idle = idle.collect();
    let excused = |difference: &Difference| exceptions.iter().any(|e| e.excuses(difference));
    let left = differences.into_iter().filter(|difference| !excused(difference)).collect();
    (left, idle)
}
