//! Launches: the limits of their geometry, and their required arguments.

use std::ffi::c_void;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Launches `store` with a geometry and dynamic shared memory.
fn launch(machine: &Machine, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> CUresult {
    let (mut address, mut word) = (machine.zero(), 1u32);
    let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut word).cast()];
    let (function, stream) = (machine.function(c"store"), machine.stream());
    let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    let code = cu!(
        machine,
        cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, list, none)
    );
    assert_eq!(machine.sync(stream), SUCCESS);
    code
}

#[test]
fn a_geometry_beyond_the_limits_is_an_invalid_value() {
    let machine = Machine::new();
    let one = [1; 3];
    for (grid, block, code) in [
        (one, [1024, 1, 1], SUCCESS),
        (one, [32, 32, 1], SUCCESS),
        (one, [1025, 1, 1], INVALID_VALUE),
        (one, [32, 33, 1], INVALID_VALUE),
        (one, [1, 1, 65], INVALID_VALUE),
        (one, [0, 1, 1], INVALID_VALUE),
        ([0, 1, 1], one, INVALID_VALUE),
        ([1, 65535, 1], one, SUCCESS),
        ([1, 65536, 1], one, INVALID_VALUE),
        ([1, 1, 65536], one, INVALID_VALUE),
    ] {
        assert_eq!(launch(&machine, grid, block, 0), code, "grid {grid:?}, block {block:?}");
    }
}

#[test]
fn a_kernel_reads_and_writes_pinned_memory_when_it_runs() {
    let machine = Machine::new();
    let (stream, host) = (machine.stream(), machine.pinned(&[1, 9]));
    let address = host.expose_provenance() as u64;
    assert_eq!(machine.append(address, 3, stream), SUCCESS);
    // SAFETY: the pinned words live, and nothing runs before the wait.
    unsafe {
        assert_eq!(host.read(), 1);
        host.write(2);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!([host.read(), host.add(1).read()], [0x23, 9]);
    }
}

#[test]
fn a_kernel_access_to_pageable_host_memory_is_a_fault() {
    for freed in [false, true] {
        let machine = Machine::new();
        let (stream, mut word) = (machine.stream(), 1_u32);
        let host = if freed { machine.pinned(&[1]) } else { &raw mut word };
        if freed {
            assert_eq!(cu!(machine, cuMemFreeHost(host.cast())), SUCCESS);
        }
        assert_eq!(machine.append(host.expose_provenance() as u64, 3, stream), SUCCESS);
        assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(machine.diagnostics(DiagnosticKind::Fault).len(), 1);
        assert_eq!(word, 1);
    }
}

#[test]
fn shared_memory_beyond_the_limit_needs_an_opt_in() {
    let machine = Machine::new();
    let (one, function) = ([1; 3], machine.function(c"store"));
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(launch(&machine, one, one, 48 << 10), SUCCESS);
    assert_eq!(launch(&machine, one, one, (48 << 10) + 1), INVALID_VALUE);
    assert_eq!(cu!(machine, cuFuncSetAttribute(function, limit, 227 << 10)), SUCCESS);
    assert_eq!(launch(&machine, one, one, 227 << 10), SUCCESS);
    let more = cu!(machine, cuFuncSetAttribute(function, limit, (227 << 10) + 1));
    assert_eq!(more, INVALID_VALUE);
}

#[test]
fn a_kernel_with_reqntid_requires_its_block_size() {
    let machine = Machine::new();
    let (function, none) = (machine.function(c"tile"), std::ptr::null_mut());
    let stream = machine.stream();
    let run =
        |x| cu!(machine, cuLaunchKernel(function, 1, 1, 1, x, 1, 1, 0, stream, none, none.cast()));
    assert_eq!(run(64), SUCCESS);
    assert_eq!(run(32), INVALID_VALUE);
    assert_eq!(run(128), INVALID_VALUE);
    assert_eq!(machine.sync(stream), SUCCESS);
}

#[test]
fn parameters_come_as_a_list_or_as_one_block() {
    let machine = Machine::new();
    let (word, stream, function) = (machine.zero(), machine.stream(), machine.function(c"store"));
    let none = std::ptr::null_mut();
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
    assert_eq!(code, INVALID_VALUE, "the kernel has parameters");
    let mut block = [0u8; 12];
    block[..8].copy_from_slice(&word.to_le_bytes());
    block[8..].copy_from_slice(&77u32.to_le_bytes());
    let mut size = block.len();
    let key = std::ptr::without_provenance_mut::<c_void>;
    let mut extra = [key(1), block.as_mut_ptr().cast(), key(2), (&raw mut size).cast(), key(0)];
    let extra = extra.as_mut_ptr();
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, extra));
    assert_eq!(code, SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 77);
}

#[test]
fn occupancy_falls_with_threads_and_shared_memory() {
    let machine = Machine::new();
    let function = machine.function(c"store");
    let blocks = |threads, shared| {
        let mut blocks = -1;
        let code = cu!(
            machine,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, shared)
        );
        assert_eq!(code, SUCCESS);
        blocks
    };
    assert_eq!(blocks(1024, 0), 2);
    assert_eq!(blocks(256, 0), 8);
    assert_eq!(blocks(32, 0), 32);
    assert_eq!(blocks(32, 40 << 10), 5);
    assert_eq!(blocks(32, 100 << 10), 0, "nobody opted in");
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(cu!(machine, cuFuncSetAttribute(function, limit, 100 << 10)), SUCCESS);
    assert_eq!(blocks(32, 100 << 10), 2);
}

#[test]
fn most_launch_attributes_in_a_capture_are_unsupported() {
    let machine = Machine::new();
    let (stream, function) = (machine.stream(), machine.function(c"tile"));
    let launch = |id| {
        let mut attribute = CUlaunchAttribute { id, ..Default::default() };
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 64,
            blockDimY: 1,
            blockDimZ: 1,
            hStream: stream,
            attrs: &mut attribute,
            numAttrs: 1,
            ..Default::default()
        };
        let none = std::ptr::null_mut();
        cu!(machine, cuLaunchKernelEx(&config, function, none, none))
    };
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(launch(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE), SUCCESS);
    let priority = launch(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY);
    assert_eq!(priority, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), 1);
}

#[test]
fn a_node_has_clusters_that_its_launch_allows() {
    const INVALID_SIZE: CUresult = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
    let machine = Machine::new();
    let (graph, word) = (machine.graph(), machine.zero());
    let (mut address, mut digit, mut node) = (word, 1u32, CUgraphNode::NULL);
    let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut digit).cast()];
    let mut params = CUDA_KERNEL_NODE_PARAMS {
        func: machine.function(c"append"),
        gridDimX: 4,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: list.as_mut_ptr(),
        ..Default::default()
    };
    let none = std::ptr::null();
    assert_eq!(cu!(machine, cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &params)), SUCCESS);
    let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    let set = |x| {
        let cluster = CUlaunchAttributeValue_clusterDim { x, y: 1, z: 1 };
        let value = CUlaunchAttributeValue { clusterDim: cluster };
        cu!(machine, cuGraphKernelNodeSetAttribute(node, id, &value))
    };
    let held = || {
        let mut value = CUlaunchAttributeValue::default();
        assert_eq!(cu!(machine, cuGraphKernelNodeGetAttribute(node, id, &mut value)), SUCCESS);
        // SAFETY: the driver wrote this field.
        unsafe { value.clusterDim.x }
    };
    assert_eq!((set(3), held()), (INVALID_SIZE, 0), "3 does not divide the grid");
    assert_eq!((set(2), held()), (SUCCESS, 2));
    assert_eq!((set(16), held()), (INVALID_SIZE, 2), "the earlier size stays");
    let exec = machine.instantiate(graph).unwrap();
    for (blocks, code) in [(6, SUCCESS), (7, INVALID_SIZE)] {
        params.gridDimX = blocks;
        assert_eq!(cu!(machine, cuGraphExecKernelNodeSetParams_v2(exec, node, &params)), code);
    }
    machine.run(exec);
    assert_eq!(cu!(machine, cuGraphKernelNodeSetParams_v2(node, &params)), INVALID_SIZE);
    machine.instantiate(graph).unwrap();
}
