//! Functions by name: `cuGetProcAddress` returns functions of the same machine.

use std::ffi::{CStr, c_void};

use retrograph_driver_sim::{Config, DiagnosticKind, Simulator};
use retrograph_driver_sys::{CUdriverProcAddressQueryResult as Status, CUresult};

struct Answer {
    code: CUresult,
    address: *mut c_void,
    status: Option<Status>,
}

const UNTOUCHED: Status = Status(77);

fn ask(simulator: &Simulator, name: &CStr, version: i32, flags: u64) -> Answer {
    let (mut address, mut status) = (std::ptr::dangling_mut(), UNTOUCHED);
    // SAFETY: the name is C text, and both out pointers are valid during the call.
    let code = unsafe {
        (simulator.table().cuGetProcAddress_v2)(
            name.as_ptr(),
            &mut address,
            version,
            flags,
            &mut status,
        )
    };
    Answer { code, address, status: (status != UNTOUCHED).then_some(status) }
}

fn simulator() -> Simulator {
    Simulator::new(Config::default()).expect("there is a free slot")
}

#[test]
fn a_name_resolves_to_the_newest_version_for_the_caller() {
    let simulator = simulator();
    let table = simulator.table();
    let answers = [
        ("cuMemAlloc", 13000, table.cuMemAlloc_v2 as *mut c_void),
        ("cuStreamGetCaptureInfo", 12020, table.cuStreamGetCaptureInfo_v2 as *mut c_void),
        ("cuEventElapsedTime", 12000, table.cuEventElapsedTime as *mut c_void),
        ("cuInit", 2000, table.cuInit as *mut c_void),
    ];
    for (name, version, expected) in answers {
        let name = std::ffi::CString::new(name).expect("names hold no zero byte");
        let answer = ask(&simulator, &name, version, 0);
        assert_eq!(answer.code, CUresult::CUDA_SUCCESS, "{name:?}");
        assert_eq!(answer.address, expected, "{name:?} of {version}");
        assert_eq!(answer.status, Some(Status::CU_GET_PROC_ADDRESS_SUCCESS));
    }
}

#[test]
fn two_machines_have_different_functions() {
    let (one, other) = (simulator(), simulator());
    let address = |simulator| ask(simulator, c"cuMemAlloc", 12000, 0).address;
    assert_ne!(address(&one), address(&other));
}

#[test]
fn missing_symbols_differ_from_those_of_later_versions() {
    let simulator = simulator();
    let unknown = ask(&simulator, c"cuNoSuchFunction", 13000, 0);
    assert!(unknown.code.is_success() && unknown.address.is_null());
    assert_eq!(unknown.status, Some(Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    let later = ask(&simulator, c"cuGraphAddNode", 12000, 0);
    assert!(later.code.is_success() && later.address.is_null());
    assert_eq!(later.status, Some(Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    let future = ask(&simulator, c"cuMemAlloc", 13010, 0);
    assert_eq!((future.code, future.status), (CUresult::CUDA_ERROR_INVALID_VALUE, None));
    assert_eq!(simulator.diagnostics(), []);
}

#[test]
fn calling_an_unsupported_function_stops_the_machine() {
    let simulator = simulator();
    let answer = ask(&simulator, c"cuTexObjectDestroy", 13000, 0);
    assert_eq!(answer.code, CUresult::CUDA_SUCCESS);
    type Destroy = unsafe extern "C" fn(u64) -> CUresult;
    // SAFETY: this is the address of `cuTexObjectDestroy`, which has this type.
    let destroy = unsafe { std::mem::transmute::<*mut c_void, Destroy>(answer.address) };
    // SAFETY: no object is an error at worst.
    let code = unsafe { destroy(0) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(simulator.diagnostics()[0].kind, DiagnosticKind::Unsupported);
}
