//! The result codes by name, value and meaning: one table from which constants, names and
//! meanings are derived.

use super::CUresult;

macro_rules! result_codes {
    ($($name:ident = $value:literal, $meaning:literal $(since $since:literal)?;)*) => {
        impl CUresult {
            $(
                #[doc = concat!("Code ", stringify!($value), ": ", $meaning, ".")]
                $(#[doc = concat!("\n\nSince driver ", stringify!($since), ".")])?
                pub const $name: Self = Self($value);
            )*

            /// Every code of the table, in ascending order.
            pub const KNOWN: &'static [Self] = &[$(Self($value)),*];

            /// The name in cuda.h, or `None` for a code that is not in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The meaning of the code in a few words, or `None` for a code that is not in the
            /// table.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($meaning),)*
                    _ => None,
                }
            }
        }
    };
}

result_codes! {
    CUDA_SUCCESS = 0, "the call did what it was asked to; for a query: the work is complete";
    CUDA_ERROR_INVALID_VALUE = 1, "an argument is outside the values that the call accepts";
    CUDA_ERROR_OUT_OF_MEMORY = 2, "there is not enough memory left for the request";
    CUDA_ERROR_NOT_INITIALIZED = 3, "cuInit was not called, or it failed";
    CUDA_ERROR_DEINITIALIZED = 4, "the driver is shutting down";
    CUDA_ERROR_PROFILER_DISABLED = 5, "profiling is not available in this run";
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = 6, "deprecated: the profiler was not initialized";
    CUDA_ERROR_PROFILER_ALREADY_STARTED = 7, "deprecated: the profiler runs already";
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = 8, "deprecated: the profiler does not run";
    CUDA_ERROR_STUB_LIBRARY = 34, "the loaded library is a link-time stub, not a driver";
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
        "the call exists only in a newer driver" since 13000;
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46, "the device is held by somebody else or excluded";
    CUDA_ERROR_NO_DEVICE = 100, "the driver sees no device";
    CUDA_ERROR_INVALID_DEVICE = 101, "there is no device with this ordinal";
    CUDA_ERROR_DEVICE_NOT_LICENSED = 102, "the device lacks a licence that the call needs";
    CUDA_ERROR_INVALID_IMAGE = 200, "the image is not one that the driver can read";
    CUDA_ERROR_INVALID_CONTEXT = 201,
        "no context is current on this thread, or the one given is gone";
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = 202, "deprecated: the context is current already";
    CUDA_ERROR_MAP_FAILED = 205, "memory could not be mapped";
    CUDA_ERROR_UNMAP_FAILED = 206, "memory could not be unmapped";
    CUDA_ERROR_ARRAY_IS_MAPPED = 207, "the array is mapped and cannot be destroyed";
    CUDA_ERROR_ALREADY_MAPPED = 208, "the resource is mapped already";
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209, "the image holds nothing that can run on this device";
    CUDA_ERROR_ALREADY_ACQUIRED = 210, "the resource was acquired already";
    CUDA_ERROR_NOT_MAPPED = 211, "the resource is not mapped";
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = 212, "the resource is mapped, but not as an array";
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = 213, "the resource is mapped, but not as an address";
    CUDA_ERROR_ECC_UNCORRECTABLE = 214, "the device found a memory error that it cannot correct";
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215, "the device does not have this limit";
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216, "the context is already bound to another thread";
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217, "the two devices cannot reach each other's memory";
    CUDA_ERROR_INVALID_PTX = 218, "the PTX of the image does not compile; the JIT log says where";
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = 219,
        "the context of a graphics interface is of no use here";
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220, "an NVLink transfer failed beyond correction";
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221, "the library that compiles PTX is not installed";
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
        "the PTX is of a newer ISA version than the driver understands";
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223, "compiling PTX is switched off in this process";
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224,
        "contexts on this device cannot be limited in this way";
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225,
        "the PTX synchronizes with launches of its own, which no longer exists" since 12010;
    CUDA_ERROR_CONTAINED = 226,
        "the hardware contained a fault; only a new process gets a working context" since 12080;
    CUDA_ERROR_INVALID_SOURCE = 300, "the source of a kernel is invalid";
    CUDA_ERROR_FILE_NOT_FOUND = 301, "a file does not exist";
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "a shared library lacks a symbol";
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303, "a shared library failed to initialize";
    CUDA_ERROR_OPERATING_SYSTEM = 304, "a call to the operating system failed";
    CUDA_ERROR_INVALID_HANDLE = 400, "a handle is null, destroyed or of another kind";
    CUDA_ERROR_ILLEGAL_STATE = 401, "the object is not in a state that allows the call";
    CUDA_ERROR_LOSSY_QUERY = 402,
        "the answer would leave out something that matters, such as the kinds of edges" since 12030;
    CUDA_ERROR_NOT_FOUND = 500, "nothing has that name";
    CUDA_ERROR_NOT_READY = 600, "the work that was asked about is still running";
    CUDA_ERROR_ILLEGAL_ADDRESS = 700, "a kernel accessed memory that is not allocated";
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
        "the launch needs more registers or threads than the device has";
    CUDA_ERROR_LAUNCH_TIMEOUT = 702, "a kernel ran longer than the system allows";
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703,
        "the launch uses textures in a mode that does not fit";
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already on";
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705, "peer access was not on";
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708, "the primary context exists already";
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, "the current context was destroyed";
    CUDA_ERROR_ASSERT = 710, "an assertion failed in a kernel";
    CUDA_ERROR_TOO_MANY_PEERS = 711, "the hardware cannot give access to one more peer";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712, "the host memory is pinned already";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713, "the host memory is not pinned";
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714, "a kernel overran its call stack";
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
        "a kernel met an instruction that the device does not have";
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
        "a kernel accessed an address that is not a multiple of the access size";
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717, "a kernel used an address in the wrong state space";
    CUDA_ERROR_INVALID_PC = 718, "a kernel jumped outside its code";
    CUDA_ERROR_LAUNCH_FAILED = 719, "a kernel failed in a way that has no code of its own";
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
        "a cooperative grid does not fit on the device at once";
    CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
        "a kernel ended without giving back all of its tensor memory" since 12080;
    CUDA_ERROR_NOT_PERMITTED = 800, "the call is not allowed here";
    CUDA_ERROR_NOT_SUPPORTED = 801, "the call is not supported by this driver or device";
    CUDA_ERROR_SYSTEM_NOT_READY = 802, "a system service that the driver needs is not running";
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
        "the library and the kernel driver have different versions";
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
        "forward compatibility does not exist for this device";
    CUDA_ERROR_MPS_CONNECTION_FAILED = 805, "the multi-process service cannot be reached";
    CUDA_ERROR_MPS_RPC_FAILURE = 806,
        "a call between the multi-process service and its server failed";
    CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
        "the server of the multi-process service takes no clients now";
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808,
        "the multi-process service has as many clients as it can have";
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809,
        "the multi-process service has no connection left on the device";
    CUDA_ERROR_MPS_CLIENT_TERMINATED = 810, "the multi-process service ended this client";
    CUDA_ERROR_CDP_NOT_SUPPORTED = 811, "kernels cannot launch kernels here";
    CUDA_ERROR_CDP_VERSION_MISMATCH = 812,
        "kernels launch kernels through a version that does not fit";
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
        "the call is not allowed while the stream is captured";
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
        "the capture was lost through an earlier call, which returned the reason";
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902, "the call would join two separate captures";
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903, "the capture was not begun on this stream";
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
        "a stream that was forked into the capture was never joined back";
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
        "the captured work would depend on work outside the capture";
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
        "the call would depend on the legacy stream while a capture is open";
    CUDA_ERROR_CAPTURED_EVENT = 907,
        "the event represents captured work and has no completion of its own";
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
        "another thread began this capture and must end it";
    CUDA_ERROR_TIMEOUT = 909, "a wait ran out of time";
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
        "the instantiated graph cannot be changed into the given one";
    CUDA_ERROR_EXTERNAL_DEVICE = 911, "a device outside the driver's control failed";
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912, "the cluster size is not possible for this launch";
    CUDA_ERROR_FUNCTION_NOT_LOADED = 913, "the function is not loaded yet" since 12040;
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
        "a resource is of a type that the call does not take" since 12040;
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
        "the resources are too few or do not fit the call" since 12040;
    CUDA_ERROR_KEY_ROTATION = 916,
        "the keys of confidential computing could not be renewed" since 12080;
    CUDA_ERROR_UNKNOWN = 999, "the driver gives no reason";
}
