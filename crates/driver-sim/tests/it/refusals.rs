//! A refused call leaves the state unchanged.

use std::ffi::CStr;
use std::ptr::null_mut;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// A kernel with an unsupported 128-bit value, in a module with a variable.
const WIDE: &CStr = c"
.version 8.3
.target sm_90
.address_size 64
.global .align 4 .b8 table[65536];
.visible .entry k()
{
    .reg .b128 %q;
    .reg .b64 %rd<2>;
    mov.b128 %q, {%rd0, %rd1};
    ret;
}";

/// A kernel that calls a function without a body.
const UNDEFINED: &CStr = c"
.version 8.0
.target sm_90
.address_size 64
.extern .func elsewhere();
.visible .entry k()
{
    call.uni elsewhere;
    ret;
}";

/// The text of an error code.
fn error_text(machine: &Machine, code: CUresult) -> String {
    let mut text = std::ptr::null();
    assert_eq!(cu!(machine, cuGetErrorString(code, &mut text)), SUCCESS);
    // SAFETY: the driver returned a static C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn free_bytes(machine: &Machine) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    free
}

#[test]
fn calls_after_an_unsupported_call_work() {
    let machine = Machine::new();
    let (stream, word) = (machine.stream(), machine.zero());
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    let before = machine.simulator.live();
    for _ in 0..2 {
        let mut properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            ..CUmemPoolProps::default()
        };
        properties.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let mut pool = CUmemoryPool::NULL;
        assert_eq!(cu!(machine, cuMemPoolCreate(&mut pool, &properties)), NOT_SUPPORTED);
        assert_eq!(pool, CUmemoryPool::NULL);
    }
    assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), 2);
    assert_eq!(machine.simulator.live(), before);
    assert!(error_text(&machine, NOT_SUPPORTED).contains("not supported"));
    assert_eq!(machine.append(word, 2, stream), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 0x12, "work queued before and after runs");
}

#[test]
fn an_unsupported_module_takes_no_memory() {
    let machine = Machine::new();
    let before = free_bytes(&machine);
    for _ in 0..3 {
        assert_eq!(machine.load(WIDE), Err(NOT_SUPPORTED));
    }
    assert_eq!(free_bytes(&machine), before);
}

#[test]
fn an_unsupported_launch_leaves_its_capture_usable() {
    let machine = Machine::new();
    let (stream, word) = (machine.stream(), machine.zero());
    assert_eq!(machine.begin(stream), SUCCESS);
    let attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY,
        ..CUlaunchAttribute::default()
    };
    let mut attributes = [attribute];
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: 1,
        ..CUlaunchConfig::default()
    };
    let function = machine.function(c"append");
    let (mut address, mut digit) = (word, 7u32);
    let mut list = [(&raw mut address).cast(), (&raw mut digit).cast()];
    let launched = cu!(machine, cuLaunchKernelEx(&config, function, list.as_mut_ptr(), null_mut()));
    assert_eq!(launched, NOT_SUPPORTED);
    assert_eq!(machine.append(word, 3, stream), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let mut nodes = 0;
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, null_mut(), &mut nodes)), SUCCESS);
    assert_eq!(nodes, 1, "the refused launch is no node");
}

#[test]
fn an_error_that_no_trace_attests_is_reported_and_stops_nothing() {
    let machine = Machine::new();
    let (mut library, mut address, mut bytes) = (CUlibrary::NULL, 0, 0);
    let (image, none) = (UNDEFINED.as_ptr().cast(), null_mut());
    let loaded = cu!(
        machine,
        cuLibraryLoadData(&mut library, image, none, null_mut(), 0, null_mut(), null_mut(), 0)
    );
    assert_eq!(loaded, SUCCESS, "libraries are compiled on first use");
    let found = cu!(machine, cuLibraryGetGlobal(&mut address, &mut bytes, library, c"g".as_ptr()));
    assert_eq!(found, NOT_SUPPORTED);
    let said = machine.diagnostics(DiagnosticKind::Unattested);
    assert!(said.len() == 1 && said[0].contains("218"), "{said:?}");
    assert_eq!(cu!(machine, cuLibraryUnload(library)), SUCCESS);
}

#[test]
fn error_texts_outlive_undefined_behaviour() {
    let machine = Machine::new();
    let freed = machine.stream();
    assert_eq!(cu!(machine, cuStreamDestroy_v2(freed)), SUCCESS);
    let stopped = CUresult::CUDA_ERROR_UNKNOWN;
    assert_eq!(machine.sync(freed), stopped);
    assert_eq!(cu!(machine, cuCtxSynchronize()), stopped, "every later call fails");
    assert!(!error_text(&machine, stopped).is_empty());
    let mut version = 0;
    assert_eq!(cu!(machine, cuDriverGetVersion(&mut version)), SUCCESS);
}

#[test]
fn a_call_with_a_null_result_pointer_creates_nothing() {
    let machine = Machine::new();
    let graph = machine.graph();
    let before = machine.simulator.live();
    for (call, code) in [
        ("cuCtxCreate_v2", cu!(machine, cuCtxCreate_v2(null_mut(), 0, 0))),
        ("cuGraphCreate", cu!(machine, cuGraphCreate(null_mut(), 0))),
        ("cuGraphClone", cu!(machine, cuGraphClone(null_mut(), graph))),
        (
            "cuGraphInstantiateWithFlags",
            cu!(machine, cuGraphInstantiateWithFlags(null_mut(), graph, 0)),
        ),
        ("cuMemAlloc_v2", cu!(machine, cuMemAlloc_v2(null_mut(), 64))),
        ("cuMemHostAlloc", cu!(machine, cuMemHostAlloc(null_mut(), 64, 0))),
        ("cuStreamCreate", cu!(machine, cuStreamCreate(null_mut(), 0))),
        ("cuEventCreate", cu!(machine, cuEventCreate(null_mut(), 0))),
    ] {
        assert_eq!(code, INVALID_VALUE, "{call}");
        assert_eq!(machine.simulator.live(), before, "{call}");
    }
    let mut current = CUcontext::NULL;
    assert_eq!(cu!(machine, cuCtxGetCurrent(&mut current)), CUresult::CUDA_SUCCESS);
    assert_eq!(current, machine.context, "no other context became current");
}

#[test]
fn a_handle_that_was_never_a_context_stops_the_simulator() {
    let stray = CUcontext(std::ptr::without_provenance_mut(0x10));
    let calls: [fn(&Machine, CUcontext) -> CUresult; 4] = [
        |machine, context| cu!(machine, cuCtxDestroy_v2(context)),
        |machine, context| cu!(machine, cuCtxGetId(context, &mut 0)),
        |machine, context| cu!(machine, cuCtxSetCurrent(context)),
        |machine, context| cu!(machine, cuCtxPushCurrent_v2(context)),
    ];
    for call in calls {
        let machine = Machine::new();
        assert_eq!(call(&machine, stray), CUresult::CUDA_ERROR_UNKNOWN);
        let said = machine.diagnostics(DiagnosticKind::Undefined);
        assert!(said.len() == 1 && said[0].contains("context"), "{said:?}");
    }
}

/// The test suite of cuda-bindings compares both texts.
#[test]
fn two_error_texts_match_the_driver() {
    let machine = Machine::new();
    assert_eq!(error_text(&machine, SUCCESS), "no error");
    let unknown = cu!(machine, cuDeviceGet(&mut 0, 99));
    assert_eq!(error_text(&machine, unknown), "invalid device ordinal");
}

#[test]
fn a_library_kernel_has_a_cache_preference() {
    let machine = Machine::new();
    let (mut library, mut kernel) = (CUlibrary::NULL, CUkernel::NULL);
    let image = crate::ptx::small("7.0", "sm_80");
    let (text, none) = (image.as_ptr().cast(), null_mut());
    let code = cu!(
        machine,
        cuLibraryLoadData(&mut library, text, none, null_mut(), 0, null_mut(), null_mut(), 0)
    );
    assert_eq!(code, SUCCESS);
    let found = cu!(machine, cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()));
    assert_eq!(found, SUCCESS);
    let prefers = |config| cu!(machine, cuKernelSetCacheConfig(kernel, CUfunc_cache(config), 0));
    assert_eq!([0, 1, 2, 3].map(prefers), [SUCCESS; 4]);
    assert!(machine.diagnostics(DiagnosticKind::Unattested).is_empty());
    assert_eq!(prefers(4), CUresult::CUDA_ERROR_INVALID_VALUE);
    // Without a current context, the call still succeeds.
    assert_eq!(cu!(machine, cuCtxSetCurrent(CUcontext::NULL)), SUCCESS);
    assert_eq!(prefers(0), SUCCESS);
    assert!(machine.diagnostics(DiagnosticKind::Unattested).is_empty());
}
