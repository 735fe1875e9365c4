//! Several devices: access to the memory of a peer, and copies between devices.

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu, cu_optional, with};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Two devices. The first context is current, and the second is returned.
fn two() -> (Machine, CUcontext) {
    let machine = Machine::with(with(Config::default(), |it| {
        it.devices = 2;
        it.memory_bytes = 1 << 24;
        it.threads = 1;
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
    let own = CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(machine.context, 0)), own);
    assert_eq!(cu!(machine, cuCtxDisablePeerAccess(machine.context)), never);
}

#[test]
fn access_cannot_change_during_a_capture() {
    let (machine, other) = two();
    let stream = machine.stream();
    assert_eq!(machine.begin(stream), SUCCESS);
    let refused = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), refused);
    assert_eq!(machine.end(stream).0, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn a_fault_loses_the_contexts_of_all_devices() {
    let (machine, other) = two();
    let word = within(&machine, other, || machine.zero());
    let stream = machine.stream();
    assert_eq!(machine.append(word, 1, stream), SUCCESS, "without access");
    let lost = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(machine.sync(stream), lost);
    assert_eq!(cu!(machine, cuCtxSetCurrent(other)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxSynchronize()), lost);
    assert_eq!(cu!(machine, cuMemFree_v2(word)), lost);
    let mut ordinal = -1;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let to = (&raw mut ordinal).cast();
    assert_eq!(cu!(machine, cuPointerGetAttribute(to, attribute, word)), SUCCESS);
    assert_eq!(ordinal, 1);
}

#[test]
fn a_destroyed_peer_is_refused() {
    let (machine, other) = two();
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRelease_v2(1)), SUCCESS);
    let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), destroyed);
    assert_eq!(cu!(machine, cuCtxDisablePeerAccess(other)), destroyed);
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
fn a_copy_finds_its_memory_whichever_contexts_it_names() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[1, 2, 3]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 3]));
    for (at, [to, from]) in [[own, other], [CUcontext::NULL; 2], [own; 2]].iter().enumerate() {
        let offset = 4 * at as u64;
        let code = cu!(machine, cuMemcpyPeer(there + offset, *to, here + offset, *from, 4));
        assert_eq!(code, SUCCESS);
    }
    assert_eq!(words_at(&machine, other, there, 3), [1, 2, 3]);
}

#[test]
fn a_copy_with_a_destroyed_context_is_undefined() {
    let (machine, other) = two();
    let here = machine.words(&[1, 2]);
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRelease_v2(1)), SUCCESS);
    assert_ne!(cu!(machine, cuMemcpyPeer(here, other, here + 4, other, 4)), SUCCESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
}

#[test]
fn a_copy_beyond_an_allocation_is_refused() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[1, 2, 3]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 2]));
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(cu!(machine, cuMemcpyPeer(there, other, here, own, 12)), invalid);
    let mut word = 7u32;
    let pageable = (&raw mut word).expose_provenance() as u64;
    assert_eq!(cu!(machine, cuMemcpyPeer(pageable, own, here, own, 4)), invalid);
}

const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;
const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
const ARRAY: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_ARRAY;

/// A box of 2 slices of 2 rows of 2 words, from the position (1, 1, 0) in words of 4 x 3 x 2 words
/// at `source` to 2 x 2 x 2 words at `target`.
fn box_of(source: [u64; 2], target: [u64; 2]) -> CUDA_MEMCPY3D_PEER {
    let context = |address: u64| CUcontext(std::ptr::with_exposed_provenance_mut(address as usize));
    CUDA_MEMCPY3D_PEER {
        srcMemoryType: DEVICE,
        srcDevice: source[0],
        srcContext: context(source[1]),
        srcXInBytes: 4,
        srcY: 1,
        srcPitch: 16,
        srcHeight: 3,
        dstMemoryType: DEVICE,
        dstDevice: target[0],
        dstContext: context(target[1]),
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..Default::default()
    }
}

fn number(context: CUcontext) -> u64 {
    context.0.expose_provenance() as u64
}

fn words_at(machine: &Machine, context: CUcontext, address: u64, count: u64) -> Vec<u32> {
    within(machine, context, || (0..count).map(|at| machine.peek(address + 4 * at)).collect())
}

#[test]
fn boxes_are_copied_between_devices() {
    let (machine, other) = two();
    let numbers: Vec<u32> = (0..24).collect();
    let (here, own) = (machine.words(&numbers), machine.context);
    let [there, later] = [(); 2].map(|()| within(&machine, other, || machine.words(&[0; 8])));
    let expected = [5, 6, 9, 10, 17, 18, 21, 22];
    let given = box_of([here, number(own)], [there, number(other)]);
    assert_eq!(cu!(machine, cuMemcpy3DPeer(&given)), SUCCESS);
    assert_eq!(words_at(&machine, other, there, 8), expected);

    // An asynchronous copy is ordered only with its stream.
    let (stream, given) = (machine.stream(), CUDA_MEMCPY3D_PEER { dstDevice: later, ..given });
    assert_eq!(machine.append(here + 4 * 5, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpy3DPeerAsync(&given, stream)), SUCCESS);
    assert_eq!(words_at(&machine, other, later, 1), [0], "the copy is queued");
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(words_at(&machine, other, later, 8), [&[0x51], &expected[1..]].concat());
}

#[test]
fn boxes_are_copied_between_arrays_and_host_memory_of_several_devices() {
    let (machine, other) = two();
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: 4,
        Height: 2,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
    };
    let array = || {
        let mut array = CUarray::NULL;
        assert_eq!(cu!(machine, cuArrayCreate_v2(&mut array, &descriptor)), SUCCESS);
        array
    };
    let (mut words, mut read) = ([1u32, 2, 3, 4, 5, 6, 7, 8], [0u32; 8]);
    let [near, far] = [array(), within(&machine, other, array)];
    let flat = CUDA_MEMCPY3D_PEER {
        srcPitch: 16,
        dstPitch: 16,
        WidthInBytes: 16,
        Height: 2,
        Depth: 1,
        ..Default::default()
    };
    let own = machine.context;
    let hosts = [
        CUDA_MEMCPY3D_PEER {
            srcMemoryType: HOST,
            srcHost: words.as_ptr().cast(),
            dstMemoryType: ARRAY,
            dstArray: near,
            ..flat
        },
        CUDA_MEMCPY3D_PEER {
            srcMemoryType: ARRAY,
            srcArray: near,
            dstMemoryType: ARRAY,
            dstArray: far,
            ..flat
        },
        CUDA_MEMCPY3D_PEER {
            srcMemoryType: ARRAY,
            srcArray: far,
            dstMemoryType: HOST,
            dstHost: read.as_mut_ptr().cast(),
            dstContext: own,
            ..flat
        },
    ];
    for given in &hosts {
        assert_eq!(cu!(machine, cuMemcpy3DPeer(given)), SUCCESS);
    }
    assert_eq!(read, words);
    words[0] = 9;
    let stream = machine.stream();
    for given in &hosts {
        assert_eq!(cu!(machine, cuMemcpy3DPeerAsync(given, stream)), SUCCESS);
    }
    assert_eq!(read, words, "a copy to pageable memory is complete when its call returns");
}

#[test]
fn a_box_beyond_an_allocation_is_refused() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[0; 24]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 8]));
    let given = box_of([here, number(own)], [there, number(other)]);
    let with = |change: &dyn Fn(&mut CUDA_MEMCPY3D_PEER)| {
        let mut given = given;
        change(&mut given);
        cu!(machine, cuMemcpy3DPeer(&given))
    };
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(with(&|_| {}), SUCCESS);
    assert_eq!(with(&|it| it.Height = 0), SUCCESS, "nothing to copy");
    assert_eq!(with(&|it| it.srcZ = 1), invalid);
    assert_eq!(with(&|it| it.srcXInBytes = usize::MAX), invalid);
    assert_eq!(with(&|it| it.dstPitch = 4), invalid);
    assert_eq!(with(&|it| it.dstHeight = 1), invalid);
    assert_eq!(with(&|it| it.srcMemoryType = ARRAY), invalid, "no array");
    assert_eq!(with(&|it| it.dstContext = own), SUCCESS, "addresses are unified");
    assert_eq!(with(&|it| it.srcContext = CUcontext::NULL), SUCCESS);
}

#[test]
fn a_capture_contains_copies_between_devices_without_contexts_only() {
    let (machine, other) = two();
    let (here, own) = (machine.words(&[1, 2]), machine.context);
    let there = within(&machine, other, || machine.words(&[0; 2]));
    let stream = machine.stream();
    let refused = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let peer = |bytes| cu!(machine, cuMemcpyPeerAsync(there, other, here, own, bytes, stream));
    let given = box_of([here, number(own)], [there, number(other)]);
    let call: [&dyn Fn() -> CUresult; 3] =
        [&|| peer(4), &|| peer(0), &|| cu!(machine, cuMemcpy3DPeerAsync(&given, stream))];
    for call in call {
        assert_eq!(machine.begin(stream), SUCCESS);
        assert_eq!(call(), refused);
        assert_eq!(machine.end(stream).0, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }

    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpyDtoDAsync_v2(there, here, 8, stream)), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let (mut node, mut count) = (CUgraphNode::NULL, 1);
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, &mut node, &mut count)), SUCCESS);
    let mut given = CUDA_MEMCPY3D::default();
    assert_eq!(cu!(machine, cuGraphMemcpyNodeGetParams(node, &mut given)), SUCCESS);
    assert_eq!((given.srcDevice, given.dstDevice, given.WidthInBytes), (here, there, 8));
    assert_eq!((given.srcPitch, given.dstHeight), (0, 0));

    let exec = machine.instantiate(graph).unwrap();
    for first in [1, 0x13] {
        machine.run(exec);
        assert_eq!(words_at(&machine, other, there, 2), [first, 2]);
        assert_eq!(machine.append(here, 3, stream), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
    }
}

#[test]
fn a_captured_fill_runs_in_the_context_of_its_stream_and_needs_access() {
    let (machine, other) = two();
    let there = within(&machine, other, || machine.words(&[0; 2]));
    let (near, far) = (machine.stream(), within(&machine, other, || machine.stream()));
    let captured = |stream, value| {
        assert_eq!(machine.begin(stream), SUCCESS);
        assert_eq!(cu!(machine, cuMemsetD32Async(there, value, 2, stream)), SUCCESS);
        let (code, graph) = machine.end(stream);
        assert_eq!(code, SUCCESS);
        graph
    };
    machine.run(machine.instantiate(captured(far, 5)).unwrap());
    assert_eq!(words_at(&machine, other, there, 2), [5, 5]);

    let graph = captured(near, 6);
    assert_eq!(machine.instantiate(graph), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    machine.run(machine.instantiate(graph).unwrap());
    assert_eq!(words_at(&machine, other, there, 2), [6, 6]);
}

#[test]
fn events_of_two_devices_have_no_time_between_them() {
    let (machine, other) = two();
    let event = || {
        let (mut event, stream) = (CUevent::NULL, machine.stream());
        assert_eq!(cu!(machine, cuEventCreate(&mut event, 0)), SUCCESS);
        assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        (event, stream)
    };
    let ((near, stream), (far, _)) = (event(), within(&machine, other, event));
    let invalid = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let mut elapsed = 0.0;
    assert_eq!(cu!(machine, cuEventElapsedTime(&mut elapsed, near, far)), invalid);
    assert_eq!(cu!(machine, cuEventRecord(far, stream)), invalid);
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(far, stream)), invalid);
    assert_eq!(machine.end(stream).0, SUCCESS, "the capture stays valid");
}

#[test]
fn copies_find_the_devices_of_unified_addresses() {
    let (machine, other) = two();
    let here = machine.words(&[1, 2, 3]);
    let there = within(&machine, other, || machine.words(&[0; 3]));
    let mut read = [0u32; 2];
    assert_eq!(cu!(machine, cuMemcpyDtoD_v2(there, here, 8)), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpy(there + 8, here + 8, 4)), SUCCESS);
    let to = (&raw mut read).cast();
    assert_eq!(cu!(machine, cuMemcpyDtoH_v2(to, there + 4, 8)), SUCCESS);
    assert_eq!(read, [2, 3]);
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(cu!(machine, cuMemcpyDtoD_v2(there, here, 16)), invalid);

    let graph = machine.graph();
    let given = CUDA_MEMCPY3D::device_to_device(here, there + 4, 8);
    let mut node = CUgraphNode::NULL;
    let (none, context) = (std::ptr::null(), machine.context);
    let code = cu!(machine, cuGraphAddMemcpyNode(&mut node, graph, none, 0, &given, context));
    assert_eq!(code, SUCCESS);
    let (exec, stream) = (machine.instantiate(graph).unwrap(), machine.stream());
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!([0, 4].map(|at| machine.peek(here + at)), [2, 3]);
}

#[test]
fn a_kernel_of_a_graph_runs_on_the_device_of_its_module() {
    let (machine, other) = two();
    let word = within(&machine, other, || machine.zero());
    let module = within(&machine, other, || machine.load(&ptx::module())).unwrap();
    let (mut func, name) = (CUfunction::NULL, c"append");
    assert_eq!(cu!(machine, cuModuleGetFunction(&mut func, module, name.as_ptr())), SUCCESS);
    let (mut address, mut digit) = (word, 4u32);
    let mut list = [(&raw mut address).cast(), (&raw mut digit).cast()];
    let kernelParams = list.as_mut_ptr();
    let parameters = CUDA_KERNEL_NODE_PARAMS { func, kernelParams, ..Default::default() };
    let (graph, mut node, none) = (machine.graph(), CUgraphNode::NULL, std::ptr::null());
    let code = cu!(machine, cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &parameters));
    assert_eq!(code, SUCCESS);
    machine.run(machine.instantiate(graph).unwrap());
    assert_eq!(within(&machine, other, || machine.peek(word)), 4);
}

#[test]
fn a_context_waits_for_the_work_of_another_one() {
    let (machine, other) = two();
    let word = within(&machine, other, || machine.zero());
    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    let (mut event, own) = (CUevent::NULL, machine.context);
    assert_eq!(cu!(machine, cuEventCreate(&mut event, 0)), SUCCESS);
    assert_eq!(machine.append(word, 1, machine.stream()), SUCCESS);
    assert_eq!(machine.append(word, 1, machine.stream()), SUCCESS);
    assert_eq!(cu_optional!(machine, cuCtxRecordEvent(own, event)), SUCCESS);
    let invalid = CUresult::CUDA_ERROR_INVALID_HANDLE;
    assert_eq!(cu_optional!(machine, cuCtxRecordEvent(other, event)), invalid);
    assert_eq!(cu_optional!(machine, cuCtxWaitEvent(other, event)), SUCCESS);
    within(&machine, other, || {
        let stream = machine.stream();
        assert_eq!(cu!(machine, cuMemsetD32Async(word, 7, 1, stream)), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.peek(word), 7, "the kernels run before the fill");
    });
    assert_eq!(cu!(machine, cuEventQuery(event)), SUCCESS);
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
