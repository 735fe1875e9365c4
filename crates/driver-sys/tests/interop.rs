//! Feature `cuda-driver-sys`: handles survive both ways, and results keep their number.

use cuda_driver_sys as theirs;
use retrograph_driver_sys::*;

macro_rules! round_trips {
    ($($name:ident),*) => {$({
        let address = std::ptr::without_provenance_mut(0x1230);
        let ours = $name(address);
        let handle = theirs::$name::from(ours);
        assert_eq!(handle.cast::<c_void>(), address, stringify!($name));
        assert_eq!($name::from(handle), ours);
        assert!(theirs::$name::from($name::NULL).is_null());
        assert_eq!(size_of::<$name>(), size_of::<theirs::$name>());
    })*};
}

#[test]
fn handles_are_the_same_pointers_both_ways() {
    round_trips!(
        CUcontext,
        CUmodule,
        CUfunction,
        CUlinkState,
        CUstream,
        CUevent,
        CUgraph,
        CUgraphNode,
        CUgraphExec,
        CUarray,
        CUexternalSemaphore
    );
}

#[test]
fn results_keep_their_number_and_their_name() {
    use theirs::CUresult as R;
    let codes = [
        R::CUDA_SUCCESS,
        R::CUDA_ERROR_INVALID_VALUE,
        R::CUDA_ERROR_OUT_OF_MEMORY,
        R::CUDA_ERROR_NOT_READY,
        R::CUDA_ERROR_ILLEGAL_ADDRESS,
        R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        R::CUDA_ERROR_UNKNOWN,
    ];
    for code in codes {
        let ours = CUresult::from(code);
        assert_eq!(ours.0, code as u32);
        assert_eq!(ours.name().map(str::to_owned), Some(format!("{code:?}")));
    }
}

#[test]
fn addresses_and_ordinals_are_the_same_integers() {
    let (address, device): (CUdeviceptr, CUdevice) = (0x7f00_0000_0000, 3);
    let (their_address, their_device): (theirs::CUdeviceptr, theirs::CUdevice) = (address, device);
    assert_eq!((their_address, their_device), (0x7f00_0000_0000, 3));
}
