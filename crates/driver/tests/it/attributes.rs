//! Launch attributes: on launches, captured launches and kernel nodes.

use std::sync::Arc;

use retrograph_driver::{
    CaptureMode, DeviceBuffer, DriverVersion, Error, Function, Graph, KernelArguments,
    KernelLaunch, LaunchAttributes, LaunchGeometry,
};
use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUgraphNode, CUresult};

use crate::device::{Device, device, device_of, driver_of, simulated};
use crate::ptx::{SCALE, load};

/// Stores for each block the size of its cluster, times 100, and its rank there.
const RANKS: &str = "
.version 7.8
.target sm_90
.address_size 64

.visible .entry ranks(
    .param .u64 to
)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;

    ld.param.u64        %rd0, [to];
    cvta.to.global.u64  %rd1, %rd0;
    mov.u32             %r0, %ctaid.x;
    mov.u32             %r1, %cluster_nctaid.x;
    mov.u32             %r2, %cluster_ctarank;
    mad.lo.u32          %r3, %r1, 100, %r2;
    mad.wide.u32        %rd2, %r0, 4, %rd1;
    st.global.u32       [%rd2], %r3;
    ret;
}
";

/// Counts the blocks, and ends when all of them have been counted.
const MEET: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry meet(
    .param .u64 counter,
    .param .u32 blocks
)
{
    .reg .pred %p<1>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;

    ld.param.u64                %rd0, [counter];
    cvta.to.global.u64          %rd1, %rd0;
    ld.param.u32                %r0, [blocks];
    atom.global.add.u32         %r1, [%rd1], 1;
WAIT:
    ld.acquire.gpu.global.u32   %r1, [%rd1];
    setp.lt.u32                 %p0, %r1, %r0;
    @%p0 bra                    WAIT;
    ret;
}
";

/// Adds 1 to a number after it has waited for the kernel before.
const NEXT: &str = "
.version 7.8
.target sm_90
.address_size 64

.visible .entry next(
    .param .u64 number
)
{
    .reg .b32 %r<1>;
    .reg .b64 %rd<2>;

    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    ld.param.u64        %rd0, [number];
    cvta.to.global.u64  %rd1, %rd0;
    ld.global.u32       %r0, [%rd1];
    add.u32             %r0, %r0, 1;
    st.global.u32       [%rd1], %r0;
    ret;
}
";

/// Runs a launch eagerly, captured, and as a kernel node, and calls `check` after each.
fn run(device: &Device, launch: &KernelLaunch<'_>, mut check: impl FnMut()) {
    let stream = &device.stream;
    // SAFETY: the callers' arguments match their functions, and `check` waits.
    unsafe { stream.launch(launch) }.unwrap();
    check();
    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        // SAFETY: as above, and the graph keeps the buffers.
        unsafe { capturing.launch(launch) }
    });
    let mut built = Graph::new(&device.context).unwrap();
    // SAFETY: as above.
    unsafe { built.add_kernel(launch, &[]) }.unwrap();
    for graph in [captured.unwrap(), built] {
        let [node] = graph.nodes().unwrap()[..] else { panic!("one launch is one node") };
        assert_eq!(graph.launch_attributes(node).unwrap(), launch.attributes);
        graph.instantiate().unwrap().launch(stream).unwrap();
        check();
    }
}

/// The kernel `RANKS`, if the device has clusters.
fn ranks(device: &Device) -> Option<Function> {
    let has_clusters = device.context.compute_capability() >= (9, 0);
    has_clusters.then(|| load(&device.context, RANKS, "ranks"))
}

fn pairs() -> LaunchAttributes {
    LaunchAttributes::new().cluster([2, 1, 1])
}

#[test]
fn launches_have_the_clusters_of_their_attributes() {
    let device = device();
    let Some(function) = ranks(&device) else { return };
    let to = DeviceBuffer::<u32>::zeroed(&device.context, 4).unwrap();
    let arguments = KernelArguments::new().buffer(&to);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(4, 1), &arguments);
    for (blocks, expected) in [(2, [200, 201, 200, 201]), (4, [400, 401, 402, 403])] {
        let launch = launch.with(LaunchAttributes::new().cluster([blocks, 1, 1]));
        run(&device, &launch, || {
            assert_eq!(to.download(&device.stream).unwrap(), expected);
            to.upload(&device.stream, &[0; 4]).unwrap();
        });
    }
    // SAFETY: the launch is refused.
    let refused = unsafe { device.stream.launch(&launch.with(pairs().cluster([3, 1, 1]))) };
    let error = refused.unwrap_err();
    assert_eq!(error.call().unwrap().code, CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

#[test]
fn large_clusters_are_allowed_for_each_function() {
    let device = device();
    let Some(function) = ranks(&device) else { return };
    let to = DeviceBuffer::<u32>::zeroed(&device.context, 16).unwrap();
    let arguments = KernelArguments::new().buffer(&to);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(16, 1), &arguments)
        .with(LaunchAttributes::new().cluster([16, 1, 1]));
    if device.context.compute_capability() != (9, 0) {
        return; // Other devices may have other limits.
    }
    // SAFETY: the launch is refused.
    let error = unsafe { device.stream.launch(&launch) }.unwrap_err();
    assert_eq!(error.call().unwrap().code, CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    function.allow_non_portable_clusters().unwrap();
    run(&device, &launch, || {
        let expected: Vec<u32> = (1600..1616).collect();
        assert_eq!(to.download(&device.stream).unwrap(), expected);
    });
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let device = device();
    let function = load(&device.context, MEET, "meet");
    let counter = DeviceBuffer::<u32>::zeroed(&device.context, 1).unwrap();
    let arguments = KernelArguments::new().buffer(&counter).u32(16);
    let cooperative = LaunchAttributes::new().cooperative();
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(16, 1), &arguments);
    run(&device, &launch.with(cooperative), || {
        assert_eq!(counter.download(&device.stream).unwrap(), [16]);
        counter.upload(&device.stream, &[0]).unwrap();
    });
    let geometry = LaunchGeometry::linear(1 << 20, 1024);
    let launch = KernelLaunch { geometry, ..launch.with(cooperative) };
    // SAFETY: the launch is refused.
    let error = unsafe { device.stream.launch(&launch) }.unwrap_err();
    assert_eq!(error.call().unwrap().code, CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

#[test]
fn a_preferred_carveout_is_a_hint() {
    let Device { context, stream } = device();
    let function = load(&context, SCALE, "scale");
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32; 4]).unwrap();
    let arguments = KernelArguments::new().buffer(&buffer).u32(4).f32(2.0);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 32), &arguments);
    for percent in [Some(100), Some(0), None] {
        function.set_shared_carveout(percent).unwrap();
        // SAFETY: the arguments match the function, and the download below waits.
        unsafe { stream.launch(&launch) }.unwrap();
    }
    assert!(function.set_shared_carveout(Some(101)).is_err());
    assert_eq!(buffer.download(&stream).unwrap(), [8.0; 4]);

    if context.driver().version() < DriverVersion::from_number(12050) {
        return;
    }
    let launch = launch.with(LaunchAttributes::new().shared_carveout(50));
    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        // SAFETY: as above, and the graph keeps the buffer.
        unsafe { capturing.launch(&launch) }
    });
    // SAFETY: as above.
    unsafe { stream.launch(&launch) }.unwrap();
    captured.unwrap().instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [32.0; 4]);

    // CUDA does not say whether nodes accept it.
    let mut graph = Graph::new(&context).unwrap();
    // SAFETY: as above.
    match unsafe { graph.add_kernel(&launch, &[]) } {
        Ok(_) => {
            graph.instantiate().unwrap().launch(&stream).unwrap();
            assert_eq!(buffer.download(&stream).unwrap(), [64.0; 4]);
        }
        Err(error) => {
            assert_eq!(error.call().unwrap().call, "cuGraphKernelNodeSetAttribute");
            assert!(graph.nodes().unwrap().is_empty());
        }
    }
}

#[test]
fn the_attributes_of_a_node_stay_when_its_parameters_are_set() {
    let device = device();
    let Some(function) = ranks(&device) else { return };
    let Device { context, stream } = &device;
    let [one, two] = [(); 2].map(|()| DeviceBuffer::<u32>::zeroed(context, 4).unwrap());
    let [first, second] = [&one, &two].map(|to| KernelArguments::new().buffer(to));
    let geometry = LaunchGeometry::linear(4, 1);
    let mut graph = Graph::new(context).unwrap();
    let launch = KernelLaunch::new(&function, geometry, &first).with(pairs());
    // SAFETY: the arguments match the function, and the graph keeps the buffer.
    let node = unsafe { graph.add_kernel(&launch, &[]) }.unwrap();
    let mut exec = graph.instantiate().unwrap();
    let other = KernelLaunch::new(&function, geometry, &second);
    // SAFETY: as above, and the graph lives.
    unsafe {
        for attributes in [pairs().cluster([4, 1, 1]), pairs().cooperative()] {
            let error = exec.set_kernel_params(node, &other.with(attributes)).unwrap_err();
            assert_eq!(error, Error::AttributesFixed { function: "ranks".to_owned() });
        }
        exec.set_kernel_params(node, &other).unwrap();
        exec.launch(stream).unwrap();
        assert_eq!(two.download(stream).unwrap(), [200, 201, 200, 201]);
        exec.set_kernel_params(node, &launch).unwrap();
    }
    exec.launch(stream).unwrap();
    assert_eq!(one.download(stream).unwrap(), [200, 201, 200, 201]);
}

#[test]
fn a_copied_graph_has_the_attributes() {
    let device = device();
    let Some(function) = ranks(&device) else { return };
    let to = DeviceBuffer::<u32>::zeroed(&device.context, 4).unwrap();
    let arguments = KernelArguments::new().buffer(&to);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(4, 1), &arguments);
    let mut graph = Graph::new(&device.context).unwrap();
    // SAFETY: the arguments match the function, and the graph keeps the buffer.
    let node = unsafe { graph.add_kernel(&launch.with(pairs()), &[]) }.unwrap();
    let (copy, nodes) = graph.duplicate(&[node]).unwrap();
    assert_eq!(copy.launch_attributes(nodes[0]).unwrap(), pairs());
    drop(graph);
    copy.instantiate().unwrap().launch(&device.stream).unwrap();
    assert_eq!(to.download(&device.stream).unwrap(), [200, 201, 200, 201]);
}

#[test]
fn a_node_whose_attribute_is_refused_is_not_in_the_graph() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let Device { context, .. } = device_of(&driver_of(&simulator).unwrap());
    let function = load(&context, MEET, "meet");
    let arguments = KernelArguments::new().address(0).u32(1);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 1), &arguments)
        .with(LaunchAttributes::new().cooperative());
    let mut graph = Graph::new(&context).unwrap();
    let code = CUresult::CUDA_ERROR_INVALID_VALUE;
    simulator.fail("cuGraphKernelNodeSetAttribute", 1, code).unwrap();
    // SAFETY: the graph is not launched.
    let error = unsafe { graph.add_kernel(&launch, &[]) }.unwrap_err();
    assert_eq!(error.call().unwrap().code, code);
    assert!(graph.nodes().unwrap().is_empty());
    // SAFETY: as above.
    let node = unsafe { graph.add_kernel(&launch, &[]) }.unwrap();
    assert_eq!(graph.launch_attributes(node).unwrap(), launch.attributes);
}

/// Whether all edges of a graph are full dependencies: the older query fails otherwise.
fn has_only_full_edges(graph: &Graph) -> bool {
    let [mut from, mut to] = [[CUgraphNode::NULL; 8]; 2];
    let mut count = from.len();
    // SAFETY: the graph lives, and the pointers hold `count` edges.
    let code = unsafe {
        (graph.context().table().cuGraphGetEdges)(
            graph.raw(),
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            &mut count,
        )
    };
    match code {
        CUresult::CUDA_ERROR_LOSSY_QUERY => false,
        code => code.ok().map(|()| true).unwrap(),
    }
}

#[test]
fn launches_with_programmatic_stream_serialization_wait_for_the_kernel_before() {
    let Device { context, stream } = device();
    if context.compute_capability() < (9, 0) {
        return;
    }
    let function = load(&context, NEXT, "next");
    let number = DeviceBuffer::<u32>::zeroed(&context, 1).unwrap();
    let arguments = KernelArguments::new().buffer(&number);
    // SAFETY: the kernel waits before it accesses memory.
    let early = unsafe { LaunchAttributes::new().programmatic_stream_serialization() };
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 1), &arguments).with(early);
    for _ in 0..5 {
        // SAFETY: the argument matches the function, and the download below waits.
        unsafe { stream.launch(&launch) }.unwrap();
    }
    assert_eq!(number.download(&stream).unwrap(), [5]);

    let captured = stream.capture(CaptureMode::ThreadLocal, |capturing| {
        // SAFETY: as above, and the graph keeps the buffer.
        (0..3).try_for_each(|_| unsafe { capturing.launch(&launch) })
    });
    let captured = captured.unwrap();
    assert!(!has_only_full_edges(&captured), "captured edges are programmatic");
    let mut built = Graph::new(&context).unwrap();
    let mut before = Vec::new();
    for _ in 0..3 {
        // SAFETY: as above.
        before = vec![unsafe { built.add_kernel(&launch, &before) }.unwrap()];
        assert_eq!(built.launch_attributes(before[0]).unwrap(), LaunchAttributes::new());
    }
    assert!(has_only_full_edges(&built), "the edges of added nodes are full");
    let mut exec = built.instantiate().unwrap();
    // SAFETY: as above, and the graph lives.
    unsafe { exec.set_kernel_params(before[0], &launch) }.unwrap();
    exec.launch(&stream).unwrap();
    captured.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(number.download(&stream).unwrap(), [11]);
    let (early, full) = (launch.attributes, launch.attributes.full_stream_serialization());
    assert!(early.is_programmatic() && !full.is_programmatic());
}

#[test]
fn attributes_that_a_device_does_not_have_are_refused() {
    let early = |attributes: LaunchAttributes| {
        // SAFETY: the launches are refused.
        unsafe { attributes.programmatic_stream_serialization() }
    };
    let (none, cooperative) = (LaunchAttributes::new(), LaunchAttributes::new().cooperative());
    for (found, attributes, required) in [
        ((8, 9), pairs(), (9, 0)),
        ((8, 9), early(none), (9, 0)),
        ((5, 2), cooperative, (6, 0)),
        ((5, 2), pairs().cooperative(), (9, 0)),
    ] {
        let mut config = Config::default();
        config.compute_capability = found;
        let Device { context, stream } = device_of(&simulated(config));
        let function = load(&context, &SCALE.replace("sm_75", "sm_50"), "scale");
        let arguments = KernelArguments::new().address(0).u32(0).f32(1.0);
        let launch = KernelLaunch::new(&function, LaunchGeometry::linear(2, 32), &arguments)
            .with(attributes);
        let mut graph = Graph::new(&context).unwrap();
        // SAFETY: the launches are refused.
        let refused = unsafe { [stream.launch(&launch), graph.add_kernel(&launch, &[]).map(drop)] };
        for error in refused.map(Result::unwrap_err) {
            let Error::AttributeNotOnDevice { required: needed, found: held, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((needed, held), (required, found));
        }
        assert!(graph.nodes().unwrap().is_empty());
    }
}
