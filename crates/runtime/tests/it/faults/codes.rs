//! The codes that a driver function may return instead of success.

use retrograph_driver_sys::CUresult;

/// Codes that every function may return: an invalid value, an unknown error, and faults of earlier
/// asynchronous work.
const ANY: [u32; 4] = [1, 999, 700, 719];

/// Further codes of functions whose name has one of these parts, by the function's purpose.
const FURTHER: [(&[&str], &[u32]); 11] = [
    // No device, a system that is not ready, libraries of two versions.
    (&["cuInit", "cuDeviceGetCount", "cuDeviceGet"], &[100, 802, 803]),
    // The device is in use by others, or was lost.
    (&["Retain"], &[2, 46, 101]),
    (&["cuCtxSetCurrent"], &[201, 709]),
    // Device or host memory runs out.
    (&["Alloc", "Create", "AddKernelNode", "AddMem", "Instantiate", "Upload", "LoadData"], &[2]),
    (&["Launch", "Memcpy", "Memset", "EventRecord", "WaitEvent"], &[2, 400]),
    // An image that is not for this device or not for this driver, or lacks an entry.
    (&["LoadData"], &[209, 218, 222]),
    (&["GetFunction", "FuncGet", "FuncSet"], &[400, 500]),
    (&["LaunchKernel", "GraphLaunch"], &[701]),
    // An exec that refuses new parameters.
    (&["SetParams"], &[2, 910]),
    // Another part of the process captures in a mode that forbids the call on all threads.
    (&["Alloc", "Free", "Synchronize", "LoadData", "Unload", "Destroy"], &[900]),
    // The capture was invalidated before: the stream accepts no more work.
    (&["Capture", "Capturing", "LaunchKernel", "Memcpy", "Memset"], &[900, 901, 906]),
];

/// A code that is a normal answer and not a failure: the end of the list of parameters.
const ANSWERS: [(&str, u32); 1] = [("cuFuncGetParamInfo", 1)];

/// The codes that `call` may plausibly return.
pub(super) fn plausible(call: &str) -> Vec<CUresult> {
    let applies = |parts: &[&str]| parts.iter().any(|part| call.contains(part));
    let further = FURTHER.iter().filter(|(parts, _)| applies(parts));
    let mut codes: Vec<u32> =
        ANY.into_iter().chain(further.flat_map(|(_, c)| *c).copied()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes.retain(|code| !ANSWERS.contains(&(call, *code)));
    codes.into_iter().map(CUresult).collect()
}
