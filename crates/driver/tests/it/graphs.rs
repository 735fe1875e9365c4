//! Manually built graphs.

use retrograph_driver::graph::NodeParams;
use retrograph_driver::{
    CaptureMode, Context, DeviceBuffer, DeviceIndex, Error, Graph, KernelArguments, KernelLaunch,
    LaunchGeometry, MemcpyParams, MemsetParams, NodeKind, UpdateOutcome,
};
use retrograph_driver_sim::Config;
use retrograph_driver_sys::CUDA_MEMCPY3D;

use crate::device::{Device, device, simulated};
use crate::ptx::{SCALE, load};
use crate::support::with;

/// A fill of one whole buffer.
fn fill(buffer: &DeviceBuffer<u32>, pattern: u32) -> MemsetParams {
    MemsetParams { dst: buffer.address(), value: pattern, words: buffer.len() }
}

/// Adds a fill of `buffer`, which the graph keeps.
fn add_memset(graph: &mut Graph, buffer: &DeviceBuffer<u32>, pattern: u32) {
    graph.keep(buffer.owner());
    // SAFETY: the range is the whole buffer, which the graph keeps.
    unsafe { graph.add_memset(&fill(buffer, pattern), &[]) }.unwrap();
}

#[test]
fn nodes_run_in_the_order_of_the_edges() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let source = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let target = DeviceBuffer::<f32>::zeroed(&context, 4).unwrap();
    let arguments = KernelArguments::new().address(target.address()).u32(4).f32(10.0);
    let geometry = LaunchGeometry::linear(1, 32);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    let copy = MemcpyParams { dst: target.address(), src: source.address(), bytes: 16 };

    let mut graph = Graph::new(&context).unwrap();
    graph.keep(source.owner());
    graph.keep(target.owner());
    // SAFETY: the ranges are whole buffers, which the graph keeps.
    let (copied, scaled) = unsafe {
        let copied = graph.add_memcpy(&copy, &[]).unwrap();
        (copied, graph.add_kernel(&launch, &[]).unwrap())
    };
    graph.add_edge(copied, scaled).unwrap();
    let end = graph.add_empty(&[scaled]).unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 3);
    let mut edges = graph.edges().unwrap();
    edges.sort_by_key(|(_, later)| *later == end);
    assert_eq!(edges, [(copied, scaled), (scaled, end)]);
    let kinds = [copied, scaled, end].map(|node| graph.kind(node).unwrap());
    assert_eq!(kinds, [NodeKind::Memcpy, NodeKind::Kernel, NodeKind::Empty]);

    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(target.download(&stream).unwrap(), [10.0, 20.0, 30.0, 40.0]);
}

#[test]
fn a_cycle_is_refused() {
    let Device { context, .. } = device();
    let mut graph = Graph::new(&context).unwrap();
    let first = graph.add_empty(&[]).unwrap();
    let second = graph.add_empty(&[first]).unwrap();
    let closed = graph.add_edge(second, first);
    assert!(closed.is_err() || graph.instantiate().is_err());
}

#[test]
fn a_graph_keeps_its_owners() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
    let address = buffer.address();
    let mut graph = Graph::new(&context).unwrap();
    add_memset(&mut graph, &buffer, 8);
    let owner = std::sync::Arc::downgrade(&buffer.owner());
    drop(buffer);
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&stream).unwrap();
    let mut words = [0_u32; 4];
    // SAFETY: the exec keeps the memory at the address, and the wait comes before the read.
    unsafe { stream.memcpy_dtoh(words.as_mut_ptr().cast(), address, 16) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(words, [8; 4]);
    assert!(owner.upgrade().is_some());
    drop(exec);
    // On a GPU another test may be capturing, which defers the release.
    if context.driver().is_simulated() {
        assert!(owner.upgrade().is_none(), "the memory outlives its last user");
    }
}

#[test]
fn nodes_of_another_graph_are_refused() {
    let Device { context, .. } = device();
    let mut one = Graph::new(&context).unwrap();
    let mut two = Graph::new(&context).unwrap();
    let node = one.add_empty(&[]).unwrap();
    assert_eq!(two.add_empty(&[node]).unwrap_err(), Error::WrongGraph);
    assert_eq!(two.kind(node).unwrap_err(), Error::WrongGraph);
    let own = two.add_empty(&[]).unwrap();
    assert_eq!(two.add_edge(node, own).unwrap_err(), Error::WrongGraph);
}

#[test]
fn nodes_of_a_graph_are_refused_by_a_later_one_with_the_same_handle() {
    let Device { context, .. } = device();
    let mut gone = Graph::new(&context).unwrap();
    let node = gone.add_empty(&[]).unwrap();
    // A driver may give the handle of a destroyed graph to the next one.
    let raw = gone.raw();
    std::mem::forget(gone);
    // SAFETY: the graph is live, and nobody else destroys it.
    let mut next = unsafe { Graph::from_raw(&context, raw) };
    assert_eq!(next.kind(node).unwrap_err(), Error::WrongGraph);
    assert_eq!(next.add_empty(&[node]).unwrap_err(), Error::WrongGraph);
}

#[test]
fn a_child_graph_is_one_node_and_keeps_the_owners_of_the_child() {
    let Device { context, stream } = device();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
    let mut parent = Graph::new(&context).unwrap();
    {
        let mut child = Graph::new(&context).unwrap();
        add_memset(&mut child, &buffer, 6);
        parent.add_child_graph(&child, &[]).unwrap();
    }
    let nodes = parent.nodes().unwrap();
    assert_eq!(parent.kind(nodes[0]).unwrap(), NodeKind::ChildGraph);
    parent.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [6; 4]);
}

#[test]
fn parameters_can_be_read_back_and_set() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 4]).unwrap();
    let geometry = LaunchGeometry::linear(2, 32);
    let arguments = |by: f32| KernelArguments::new().address(buffer.address()).u32(4).f32(by);
    let (by_two, by_three) = (arguments(2.0), arguments(3.0));
    let double = KernelLaunch::new(&function, geometry, &by_two);
    let triple = KernelLaunch { arguments: &by_three, ..double };

    let mut graph = Graph::new(&context).unwrap();
    graph.keep(buffer.owner());
    // SAFETY: the arguments match the function; the graph keeps the buffer.
    let node = unsafe { graph.add_kernel(&double, &[]) }.unwrap();
    let held = graph.kernel_params(node).unwrap();
    assert_eq!((held.function, held.geometry), (function.raw(), geometry));
    if let Some(bytes) = held.arguments {
        let expected: Vec<_> = (0..3).map(|index| by_two.bytes(index).to_vec()).collect();
        assert_eq!(bytes, expected);
    }
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    // SAFETY: as above.
    unsafe { exec.set_kernel_params(node, &triple) }.unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [6.0; 4]);
}

#[test]
fn copies_and_fills_of_an_exec_can_be_set_and_keep_their_kind() {
    let Device { context, stream } = device();
    let words = DeviceBuffer::from_slice(&stream, &[1_u32, 2, 3, 4]).unwrap();
    let at = |word: u64| words.address() + 4 * word;
    let mut graph = Graph::new(&context).unwrap();
    graph.keep(words.owner());
    let copy = MemcpyParams { dst: at(0), src: at(1), bytes: 4 };
    let fill = MemsetParams { dst: at(3), value: 8, words: 1 };
    // SAFETY: the ranges are in the buffer, which the graph keeps, and the edge orders them.
    let (copied, filled) = unsafe {
        let copied = graph.add_memcpy(&copy, &[]).unwrap();
        (copied, graph.add_memset(&fill, &[copied]).unwrap())
    };
    let mut exec = graph.instantiate().unwrap();
    let mut other = Graph::new(&context).unwrap();
    let wrong = other.add_empty(&[]).unwrap();
    // SAFETY: as above, and the graph lives.
    unsafe {
        exec.set_memcpy_params(copied, &MemcpyParams { src: at(2), ..copy }).unwrap();
        exec.set_memset_params(filled, &MemsetParams { value: 9, ..fill }).unwrap();
        assert_eq!(exec.set_memcpy_params(wrong, &copy).unwrap_err(), Error::WrongGraph);
        assert_eq!(exec.set_memset_params(wrong, &fill).unwrap_err(), Error::WrongGraph);
        assert!(exec.set_memset_params(copied, &fill).is_err(), "a copy does not become a fill");
    }
    exec.launch(&stream).unwrap();
    assert_eq!(words.download(&stream).unwrap(), [3, 2, 3, 9]);
}

#[test]
fn an_update_takes_parameters_and_refuses_another_shape() {
    let Device { context, stream } = device();
    let one = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
    let two = DeviceBuffer::<u32>::zeroed(&context, 4).unwrap();
    let (mut first, mut second) = (Graph::new(&context).unwrap(), Graph::new(&context).unwrap());
    add_memset(&mut first, &one, 1);
    add_memset(&mut second, &two, 2);
    let mut exec = first.instantiate().unwrap();
    assert_eq!(exec.update(&second).unwrap(), UpdateOutcome::Updated);
    let owner = std::sync::Arc::downgrade(&two.owner());
    let address = two.address();
    drop((second, two));
    assert!(owner.upgrade().is_some(), "the exec keeps what it was updated to");
    exec.launch(&stream).unwrap();
    let mut words = [0_u32; 4];
    // SAFETY: the exec keeps the memory at the address, and the wait comes before the read.
    unsafe { stream.memcpy_dtoh(words.as_mut_ptr().cast(), address, 16) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!((words, one.download(&stream).unwrap()), ([2; 4], vec![0; 4]));

    let mut other = Graph::new(&context).unwrap();
    other.add_empty(&[]).unwrap();
    other.add_empty(&[]).unwrap();
    let outcome = exec.update(&other).unwrap();
    assert!(matches!(outcome, UpdateOutcome::Refused { .. }), "{outcome:?}");
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_graph_can_be_drawn() {
    let Device { context, .. } = device();
    let mut graph = Graph::new(&context).unwrap();
    let first = graph.add_empty(&[]).unwrap();
    graph.add_empty(&[first]).unwrap();
    let dot = graph.to_dot().unwrap();
    assert!(dot.starts_with("digraph") && dot.contains("n0 -> n1"), "{dot}");
    let path = std::env::temp_dir().join(format!("retrograph-{}.dot", std::process::id()));
    graph.write_dot(&path).unwrap();
    let drawn = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(drawn.contains("digraph"), "{drawn}");
    assert!(graph.write_dot(std::path::Path::new("a\0b")).is_err());
}

#[test]
fn graphs_of_different_contexts_cannot_be_combined() {
    let driver = simulated(with(Config::default(), |it| it.devices = 2));
    let here = Context::new(&driver, DeviceIndex(0)).unwrap();
    let there = Context::new(&driver, DeviceIndex(1)).unwrap();
    let mut graph = Graph::new(&here).unwrap();
    let child = Graph::new(&there).unwrap();
    let error = graph.add_child_graph(&child, &[]).unwrap_err();
    assert_eq!(error, Error::WrongContext { what: "the child graph" });
}

#[test]
fn memory_nodes_are_refused_unless_allowed() {
    let Device { stream, .. } = device();
    let captured = stream.capture(Default::default(), |capturing| {
        // SAFETY: the out pointer is valid, and the same graph frees the allocation.
        unsafe {
            capturing.library_call("library", |table, stream| {
                let mut address = 0;
                let allocated = (table.cuMemAllocAsync)(&mut address, 1024, stream);
                if !allocated.is_success() {
                    return allocated;
                }
                (table.cuMemFreeAsync)(address, stream)
            })
        }
    });
    let mut graph = captured.unwrap();
    assert_eq!(graph.instantiate().unwrap_err(), Error::MemoryNodes { nodes: 2 });
    graph.allow_memory_nodes();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn the_offsets_of_a_copied_box_are_part_of_its_addresses() {
    let Device { context, stream } = device();
    let values: Vec<u32> = (0..64).collect();
    let source = DeviceBuffer::from_slice(&stream, &values).unwrap();
    let target = DeviceBuffer::<u32>::zeroed(&context, 64).unwrap();
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: 8,
        srcY: 1,
        srcPitch: 16,
        srcHeight: 2,
        dstXInBytes: 4,
        dstY: 1,
        dstZ: 1,
        dstPitch: 16,
        dstHeight: 2,
        ..CUDA_MEMCPY3D::device_to_device(target.address(), source.address(), 8)
    };
    let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        capturing.keep(source.owner());
        capturing.keep(target.owner());
        // SAFETY: the rows are inside the buffers, which the graph keeps.
        let code = unsafe { (context.table().cuMemcpy3DAsync_v2)(&copy, capturing.stream().raw()) };
        context.check("cuMemcpy3DAsync_v2", code)
    });
    let graph = graph.unwrap();
    let [node] = graph.nodes().unwrap()[..] else { panic!("one copy is one node") };
    let (from, to) = (source.address() + 16 + 8, target.address() + 3 * 16 + 4);
    let expected = NodeParams::Memcpy(MemcpyParams { dst: to, src: from, bytes: 8 });
    assert_eq!(graph.node_params(node).unwrap(), Ok(expected));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(target.download_range(&stream, 12..16).unwrap(), [0, 6, 7, 0]);
}
