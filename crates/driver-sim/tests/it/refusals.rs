//! A refused call leaves the state unchanged.

use std::ptr::null_mut;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

#[test]
fn a_call_without_a_place_for_its_result_makes_nothing() {
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
