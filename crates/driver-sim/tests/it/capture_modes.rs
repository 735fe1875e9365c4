//! The calls that a capture forbids, by its mode and by the mode of the calling thread.

use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// A call by name.
type Named = (&'static str, fn(&Machine) -> CUresult);

/// Calls that are unsafe while a capture is open. Each gets its own machine.
fn unsafe_calls() -> Vec<Named> {
    vec![
        ("allocate", |machine| {
            let mut address = 0;
            cu!(machine, cuMemAlloc_v2(&mut address, 4))
        }),
        ("allocate pinned memory", |machine| {
            let mut pointer = std::ptr::null_mut();
            cu!(machine, cuMemAllocHost_v2(&mut pointer, 4))
        }),
        ("free", |machine| cu!(machine, cuMemFree_v2(0))),
        ("wait for another stream", |machine| machine.sync(machine.stream())),
        ("ask another stream", |machine| cu!(machine, cuStreamQuery(machine.stream()))),
        ("ask an event", |machine| cu!(machine, cuEventQuery(machine.event()))),
        ("unload a module", |machine| {
            let module = machine.load(&ptx::small("7.0", "sm_80")).expect("loading is allowed");
            cu!(machine, cuModuleUnload(module))
        }),
        ("set a limit", |machine| cu!(machine, cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 2048))),
    ]
}

/// Returns the code of a call during a capture of the given mode, and whether the capture survived.
fn during(mode: CUstreamCaptureMode, call: fn(&Machine) -> CUresult) -> (CUresult, bool) {
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuStreamBeginCapture_v2(stream, mode)), SUCCESS);
    let code = call(&machine);
    (code, machine.end(stream).0 == SUCCESS)
}

#[test]
fn strict_modes_refuse_every_unsafe_call_and_lose_the_capture() {
    for (name, call) in unsafe_calls() {
        assert_eq!(during(GLOBAL, call), (UNSUPPORTED, false), "{name}");
        assert_eq!(during(LOCAL, call), (UNSUPPORTED, false), "{name}");
    }
}

#[test]
fn the_relaxed_mode_refuses_no_call() {
    for (name, call) in unsafe_calls() {
        let (code, survived) = during(RELAXED, call);
        assert!(survived && code != UNSUPPORTED, "{name}: {code}");
    }
}

/// Allocates on another thread in a given mode during a capture of `mode` on this thread.
fn elsewhere(mode: CUstreamCaptureMode, thread_mode: CUstreamCaptureMode) -> (CUresult, bool) {
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuStreamBeginCapture_v2(stream, mode)), SUCCESS);
    let allocate = || {
        machine.enter();
        let (mut mode, mut address) = (thread_mode, 0);
        assert_eq!(cu!(machine, cuThreadExchangeStreamCaptureMode(&mut mode)), SUCCESS);
        assert_eq!(mode, GLOBAL, "what a thread starts with");
        cu!(machine, cuMemAlloc_v2(&mut address, 4))
    };
    let code = std::thread::scope(|scope| scope.spawn(allocate).join());
    (code.expect("the thread does not panic"), machine.end(stream).0 == SUCCESS)
}

#[test]
fn only_global_captures_and_global_threads_affect_each_other() {
    assert_eq!(elsewhere(GLOBAL, GLOBAL), (UNSUPPORTED, false));
    assert_eq!(elsewhere(GLOBAL, LOCAL), (SUCCESS, true));
    assert_eq!(elsewhere(GLOBAL, RELAXED), (SUCCESS, true));
    assert_eq!(elsewhere(LOCAL, GLOBAL), (SUCCESS, true));
    assert_eq!(elsewhere(RELAXED, GLOBAL), (SUCCESS, true));
}

#[test]
fn the_reason_is_returned_until_the_capture_ends() {
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(machine.begin(stream), SUCCESS);
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 4)), UNSUPPORTED);
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 4)), UNSUPPORTED);
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    assert_eq!(machine.end(stream), (invalidated, CUgraph::NULL));
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 4)), SUCCESS);
}

#[test]
fn no_mode_allows_synchronizing_a_context_with_an_open_capture() {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let (code, survived) = during(mode, |machine| cu!(machine, cuCtxSynchronize()));
        assert_eq!((code, survived), (UNSUPPORTED, false), "{mode:?}");
    }
}

#[test]
fn no_mode_forbids_synchronous_copies() {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let machine = Machine::new();
        let (host, word, stream) = (7u32, machine.zero(), machine.stream());
        assert_eq!(cu!(machine, cuStreamBeginCapture_v2(stream, mode)), SUCCESS);
        let code = cu!(machine, cuMemcpyHtoD_v2(word, (&raw const host).cast(), 4));
        assert_eq!((code, machine.peek(word)), (SUCCESS, 7));
        assert_eq!(machine.end(stream).0, SUCCESS);
    }
}
