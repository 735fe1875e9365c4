//! Streams: flags and attributes.

use std::ffi::c_void;

use crate::enumeration::flags;
use crate::handle::CUstream;
use crate::launch::{CUlaunchAttributeID, CUlaunchAttributeValue};
use crate::result::CUresult;

flags! {
    /// Flags of a stream.
    CUstream_flags: u32 {
        /// Synchronizes with the legacy stream.
        CU_STREAM_DEFAULT = 0;
        /// Does not synchronize with the legacy stream.
        CU_STREAM_NON_BLOCKING = 1;
    }
}

/// The identifier of a stream attribute: only a few launch attributes apply.
pub type CUstreamAttrID = CUlaunchAttributeID;
/// The value of an attribute of a stream.
pub type CUstreamAttrValue = CUlaunchAttributeValue;

/// A host function of `cuLaunchHostFunc` and host nodes, called with the data given there.
///
/// It runs on a thread of the driver, must not call the driver, and must not unwind.
pub type CUhostFn = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// A host function of `cuStreamAddCallback`, called with the stream, its state and the data.
///
/// It runs on a thread of the driver, must not call the driver, and must not unwind.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, data: *mut c_void)>;
