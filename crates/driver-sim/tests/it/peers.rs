//! Several devices: access to the memory of a peer, and copies between devices.

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Two devices. The first context is current, and the second is returned.
fn two() -> (Machine, CUcontext) {
    let machine = Machine::with(with(Config::default(), |it| {
        it.devices = 2;
        it.memory_bytes = 1 << 24;
        it.threads = 1;
        it.attested_only = false;
    }));
    let mut other = CUcontext::NULL;
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut other, 1)), SUCCESS);
    (machine, other)
}

/// Runs `body` with `context` current.
fn within<T>(machine: &Machine, context: CUcontext, body: impl FnOnce() -> T) -> T {
    assert_eq!(cu!(machine, cuCtxPushCurrent_v2(context)), SUCCESS);
    let result = body();
    let mut popped = CUcontext::NULL;
    assert_eq!(cu!(machine, cuCtxPopCurrent_v2(&mut popped)), SUCCESS);
    result
}

#[test]
fn devices_can_access_each_other_and_not_themselves() {
    let (machine, _) = two();
    let mut answer = 7;
    for (device, peer, expected) in [(0, 1, 1), (1, 0, 1), (0, 0, 0)] {
        assert_eq!(cu!(machine, cuDeviceCanAccessPeer(&mut answer, device, peer)), SUCCESS);
        assert_eq!(answer, expected);
    }
    let access = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    assert_eq!(cu!(machine, cuDeviceGetP2PAttribute(&mut answer, access, 0, 1)), SUCCESS);
    assert_eq!(answer, 1);
    let invalid = CUresult::CUDA_ERROR_INVALID_DEVICE;
    assert_eq!(cu!(machine, cuDeviceGetP2PAttribute(&mut answer, access, 1, 1)), invalid);
    assert_eq!(cu!(machine, cuDeviceCanAccessPeer(&mut answer, 0, 2)), invalid);
}

#[test]
fn a_kernel_uses_the_memory_of_a_peer_only_with_access() {
    let (machine, other) = two();
    let word = within(&machine, other, || machine.zero());
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    assert_eq!(machine.append(word, 4, stream), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(within(&machine, other, || machine.peek(word)), 4);

    // Queued work completes before its access is revoked.
    assert_eq!(machine.append(word, 2, stream), SUCCESS);
    assert_eq!(cu!(machine, cuCtxDisablePeerAccess(other)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(within(&machine, other, || machine.peek(word)), 0x42);

    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(machine.diagnostics(DiagnosticKind::Fault)[0].contains("append"));
}

#[test]
fn access_is_one_way_and_is_enabled_once() {
    let (machine, other) = two();
    let twice = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    let never = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    assert_eq!(cu!(machine, cuCtxDisablePeerAccess(other)), never);
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), twice);
    within(&machine, other, || {
        assert_eq!(cu!(machine, cuCtxDisablePeerAccess(machine.context)), never);
    });
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    within(&machine, other, || {
        assert_eq!(cu!(machine, cuCtxEnablePeerAccess(machine.context, 1)), invalid);
    });
    let own = CUresult::CUDA_ERROR_INVALID_DEVICE;
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(machine.context, 0)), own);
}

#[test]
fn the_end_of_a_context_ends_access_to_it() {
    let (machine, _) = two();
    let mut other = CUcontext::NULL;
    assert_eq!(cu!(machine, cuCtxCreate_v2(&mut other, 0, 1)), SUCCESS);
    let word = machine.zero();
    assert_eq!(cu!(machine, cuCtxPopCurrent_v2(&mut other)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxDestroy_v2(other)), SUCCESS);
    let stream = machine.stream();
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn copies_between_devices_need_no_access() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[1, 2, 3]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 3]));
    assert_eq!(cu!(machine, cuMemcpyPeer(there, other, here, own, 12)), SUCCESS);
    assert_eq!(within(&machine, other, || machine.peek(there + 8)), 3);

    // An asynchronous copy is ordered only with its stream.
    let stream = machine.stream();
    assert_eq!(machine.append(here, 5, stream), SUCCESS);
    let target = there + 4;
    assert_eq!(cu!(machine, cuMemcpyPeerAsync(target, other, here, own, 4, stream)), SUCCESS);
    assert_eq!(within(&machine, other, || machine.peek(target)), 2, "the copy is queued");
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(within(&machine, other, || machine.peek(target)), 0x15);
}

#[test]
fn a_copy_beyond_an_allocation_or_without_a_context_is_refused() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[1, 2, 3]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 2]));
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(cu!(machine, cuMemcpyPeer(there, other, here, own, 12)), invalid);
    assert_eq!(cu!(machine, cuMemcpyPeer(there, own, here, own, 4)), invalid);
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    assert_eq!(cu!(machine, cuMemcpyPeer(there, CUcontext::NULL, here, own, 4)), none);
}

/// Free bytes of the device of the current context.
fn free_bytes(machine: &Machine) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    free
}

#[test]
fn a_pool_allocates_on_its_own_device() {
    let (machine, other) = two();
    let stream = machine.stream();
    let (mut pool, mut address) = (CUmemoryPool::NULL, 0);
    assert_eq!(cu!(machine, cuDeviceGetDefaultMemPool(&mut pool, 1)), SUCCESS);
    let before = within(&machine, other, || free_bytes(&machine));
    assert_eq!(cu!(machine, cuMemAllocFromPoolAsync(&mut address, 4096, pool, stream)), SUCCESS);
    assert_eq!(within(&machine, other, || free_bytes(&machine)), before - 4096);
    assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(within(&machine, other, || free_bytes(&machine)), before);
}

#[test]
fn memory_of_a_graph_is_on_the_device_that_its_node_names() {
    let (machine, other) = two();
    let (stream, graph) = (machine.stream(), machine.graph());
    let (_, address) = machine.allocate_on(1, graph, 4096);
    let exec = machine.instantiate(graph).unwrap();
    let before = within(&machine, other, || free_bytes(&machine));
    for frees_now in [true, false] {
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(within(&machine, other, || free_bytes(&machine)), before - 4096);
        match frees_now {
            true => assert_eq!(cu!(machine, cuMemFree_v2(address)), SUCCESS),
            false => assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS),
        }
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(within(&machine, other, || free_bytes(&machine)), before);
    }
}
