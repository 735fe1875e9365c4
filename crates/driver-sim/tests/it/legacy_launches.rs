//! Launches from before `cuLaunchKernel`.

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Machine {
    /// Sets the block shape and the parameters of `store` for legacy launches.
    fn prepare_store(&self, address: CUdeviceptr, word: u32) -> CUfunction {
        let (store, mut address) = (self.function(c"store"), address);
        let place = (&raw mut address).cast();
        assert_eq!(cu!(self, cuFuncSetBlockShape(store, 1, 1, 1)), SUCCESS);
        assert_eq!(cu!(self, cuParamSetv(store, 0, place, 8)), SUCCESS);
        assert_eq!(cu!(self, cuParamSeti(store, 8, word)), SUCCESS);
        assert_eq!(cu!(self, cuParamSetSize(store, 12)), SUCCESS);
        store
    }
}

#[test]
fn a_legacy_launch_has_the_shape_and_the_parameters_that_were_set() {
    let machine = Machine::new();
    let (address, stream) = (machine.zero(), machine.stream());
    let store = machine.prepare_store(address, 5);
    assert_eq!(cu!(machine, cuLaunch(store)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    assert_eq!(machine.peek(address), 5);

    assert_eq!(cu!(machine, cuParamSetf(store, 8, 1.5)), SUCCESS);
    assert_eq!(cu!(machine, cuLaunchGrid(store, 2, 3)), SUCCESS, "other parameters remain");
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    assert_eq!(machine.peek(address), 1.5f32.to_bits());

    assert_eq!(cu!(machine, cuFuncSetSharedSize(store, 1 << 10)), SUCCESS);
    assert_eq!(cu!(machine, cuParamSeti(store, 8, 7)), SUCCESS);
    assert_eq!(cu!(machine, cuLaunchGridAsync(store, 1, 1, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(address), 7);
}

#[test]
fn a_legacy_launch_is_captured() {
    let machine = Machine::new();
    let (address, stream) = (machine.zero(), machine.stream());
    let store = machine.prepare_store(address, 5);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_eq!(cu!(machine, cuStreamBeginCapture_v2(stream, mode)), SUCCESS);
    assert_eq!(cu!(machine, cuLaunchGridAsync(store, 1, 1, stream)), SUCCESS);
    let code = cu!(machine, cuLaunchGridAsync(store, 0, 1, stream));
    assert_eq!(code, INVALID_VALUE, "the capture remains valid");
    let (mut graph, mut exec, mut count) = (CUgraph::NULL, CUgraphExec::NULL, 0);
    assert_eq!(cu!(machine, cuStreamEndCapture(stream, &mut graph)), SUCCESS);
    let none = std::ptr::null_mut();
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, none, &mut count)), SUCCESS);
    assert_eq!((count, machine.peek(address)), (1, 0));
    assert_eq!(cu!(machine, cuParamSeti(store, 8, 6)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphInstantiateWithFlags(&mut exec, graph, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(address), 5, "the parameters at the capture");
}

#[test]
fn legacy_arguments_out_of_range_are_invalid() {
    let machine = Machine::trusting();
    let store = machine.prepare_store(machine.zero(), 1);
    for [x, y, z] in [[0, 1, 1], [1, -1, 1], [1025, 1, 1], [1, 1, 65], [33, 32, 1]] {
        assert_eq!(cu!(machine, cuFuncSetBlockShape(store, x, y, z)), INVALID_VALUE);
    }
    for offset in [-1, 1 << 15, i32::MIN, i32::MAX] {
        assert_eq!(cu!(machine, cuParamSeti(store, offset, 0)), INVALID_VALUE);
        assert_eq!(cu!(machine, cuParamSetf(store, offset, 0.0)), INVALID_VALUE);
    }
    let (null, mut word) = (std::ptr::null_mut(), 1u32);
    assert_eq!(cu!(machine, cuParamSetv(store, 0, null, 4)), INVALID_VALUE);
    let place = (&raw mut word).cast();
    assert_eq!(cu!(machine, cuParamSetv(store, 0, place, u32::MAX)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuParamSetSize(store, 1 << 15)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuFuncSetSharedSize(store, (48 << 10) + 1)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuLaunchGrid(store, 0, 1)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuLaunchGrid(store, 1, -1)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuParamSetSize(store, 16)), SUCCESS);
    let launched = cu!(machine, cuLaunch(store));
    assert_eq!(launched, CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many parameters");
    let code = cu!(machine, cuFuncSetBlockShape(CUfunction::NULL, 1, 1, 1));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn without_calls_a_legacy_launch_has_one_thread_and_no_parameters() {
    let machine = Machine::new();
    assert_eq!(cu!(machine, cuLaunch(machine.function(c"store"))), SUCCESS);
    let code = cu!(machine, cuCtxSynchronize());
    assert_ne!(code, SUCCESS, "the address is undefined");
}

#[test]
fn cu_launch_kernel_invalidates_what_legacy_calls_have_set() {
    let missing = [
        ("the block shape", 0),
        ("the size of the parameters", 1),
        ("the size of the shared memory", 2),
    ];
    for (missing, calls) in missing {
        let machine = Machine::new();
        let (address, stream) = (machine.zero(), machine.stream());
        let store = machine.prepare_store(address, 5);
        assert_eq!(cu!(machine, cuFuncSetSharedSize(store, 0)), SUCCESS);
        assert_eq!(machine.launch(c"store", address, 6, stream), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        if calls > 0 {
            assert_eq!(cu!(machine, cuFuncSetBlockShape(store, 1, 1, 1)), SUCCESS);
        }
        if calls > 1 {
            machine.prepare_store(address, 5);
        }
        assert_ne!(cu!(machine, cuLaunch(store)), SUCCESS);
        let said = machine.diagnostics(DiagnosticKind::Undefined);
        assert!(said[0].contains(missing), "{said:?}");
    }

    let machine = Machine::new();
    let (address, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.launch(c"store", address, 6, stream), SUCCESS);
    let store = machine.prepare_store(address, 5);
    assert_eq!(cu!(machine, cuFuncSetSharedSize(store, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuLaunchGridAsync(store, 1, 1, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(address), 5);
}
