//! Faults: they surface late, are sticky, and are reported with their position.

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Launches a faulting kernel, waits, and checks that `code` is sticky.
fn assert_sticky(machine: &Machine, stream: CUstream, code: CUresult) {
    assert_eq!(machine.sync(stream), code);
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 4)), code);
    assert_eq!(machine.load(&ptx::small("7.0", "sm_80")), Err(code));
    assert_eq!(cu!(machine, cuCtxSynchronize()), code);
    assert_eq!(cu!(machine, cuStreamQuery(stream)), code);
    let mut count = 0;
    assert_eq!(cu!(machine, cuDeviceGetCount(&mut count)), SUCCESS, "the driver itself lives");
}

#[test]
fn a_fault_surfaces_at_a_later_call_and_stays() {
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(machine.launch(c"store", 64, 1, stream), SUCCESS, "the launch itself succeeds");
    assert_eq!(machine.launch(c"store", machine.zero(), 1, stream), SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let said = machine.diagnostics(DiagnosticKind::Fault);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("store") && said[0].contains("0x40"), "{said:?}");
    assert!(said[0].contains("block (0, 0, 0)"), "{said:?}");
}

#[test]
fn freed_memory_is_out_of_bounds() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(cu!(machine, cuMemFree_v2(word)), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_replay_through_a_dangling_pointer_is_detected() {
    let machine = Machine::new();
    let (graph, word, stream) = (machine.graph(), machine.zero(), machine.stream());
    machine.add(graph, c"store", word, 1, &[]);
    let exec = machine.instantiate(graph).unwrap();
    machine.run(exec);
    assert_eq!(cu!(machine, cuMemFree_v2(word)), SUCCESS);
    let again = machine.zero();
    assert_ne!(again, word, "an address is not given twice");
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn misaligned_accesses_and_traps_have_their_codes() {
    let machine = Machine::new();
    let (word, stream) = (machine.words(&[0, 0]), machine.stream());
    assert_eq!(machine.launch(c"store", word + 1, 1, stream), SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_MISALIGNED_ADDRESS);

    let machine = Machine::new();
    let (stream, stop, none) = (machine.stream(), machine.function(c"stop"), std::ptr::null_mut());
    let code = cu!(machine, cuLaunchKernel(stop, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
    assert_eq!(code, SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn detected_races_are_undefined_behaviour() {
    for detect_races in [false, true] {
        let machine = Machine::with(with(Config::default(), |it| it.detect_races = detect_races));
        let (mut word, mut digit, stream) = (machine.zero(), 1u32, machine.stream());
        let function = machine.function(c"append");
        let mut list = [(&raw mut word).cast(), (&raw mut digit).cast()];
        let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
        // Two blocks change the same word.
        let code = cu!(machine, cuLaunchKernel(function, 2, 1, 1, 1, 1, 1, 0, stream, list, none));
        assert_eq!(code, SUCCESS);
        let code = machine.sync(stream);
        let said = machine.diagnostics(DiagnosticKind::Undefined);
        if detect_races {
            assert_ne!(code, SUCCESS);
            assert!(said[0].contains("a race: a read of the byte at"), "{said:?}");
            assert!(said[0].contains("block (1, 0, 0)"), "{said:?}");
            assert!(said[0].contains("st.global.u32 [%rd2], %r4;"), "{said:?}");
        } else {
            assert_eq!((code, machine.peek(word)), (SUCCESS, 0x11));
            assert!(said.is_empty());
        }
    }
}

#[test]
fn a_replay_of_a_copy_whose_pinned_memory_was_freed_copies_nothing() {
    let machine = Machine::new();
    let (graph, word, stream) = (machine.graph(), machine.zero(), machine.stream());
    let host = machine.pinned(&[5]);
    let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
    let copy = CUDA_MEMCPY3D::host_to_device(word, host.cast(), 4);
    let context = machine.context;
    let code = cu!(machine, cuGraphAddMemcpyNode(&mut node, graph, none, 0, &copy, context));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuMemFreeHost(host.cast())), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
    let mut count = 0;
    let stopped = cu!(machine, cuDeviceGetCount(&mut count));
    assert_eq!(stopped, CUresult::CUDA_ERROR_UNKNOWN, "nothing is known of what comes after");
}

#[test]
fn a_replay_of_a_fill_of_freed_memory_is_detected() {
    let machine = Machine::new();
    let (graph, stream) = (machine.graph(), machine.stream());
    let mut row = CUDA_MEMSET_NODE_PARAMS { dst: machine.zero(), value: 7, ..Default::default() };
    (row.elementSize, row.width, row.height) = (4, 1, 1);
    let (mut node, none, context) = (CUgraphNode::NULL, std::ptr::null(), machine.context);
    let code = cu!(machine, cuGraphAddMemsetNode(&mut node, graph, none, 0, &row, context));
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuMemFree_v2(row.dst)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_sticky(&machine, stream, CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn a_faulted_device_is_lost_for_the_process() {
    let machine = Machine::new();
    let stream = machine.stream();
    assert_eq!(machine.launch(c"store", 64, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRelease_v2(0)), SUCCESS);
    assert!(machine.simulator.live().is_empty(), "{}", machine.simulator.live());
    let (mut context, mut address) = (CUcontext::NULL, 0);
    let gone = cu!(machine, cuMemAlloc_v2(&mut address, 4));
    assert_eq!(gone, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    let again = cu!(machine, cuDevicePrimaryCtxRetain(&mut context, 0));
    assert_eq!(again, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let created = cu!(machine, cuCtxCreate_v2(&mut context, 0, 0));
    assert_eq!(created, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}
