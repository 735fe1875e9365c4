//! Driver calls that fail, which only a simulated driver can do on demand.

use std::sync::Arc;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::CUresult;
use retrograph_runtime::{
    CaptureMode, DeviceBuffer, Error, Graph, KernelArguments, KernelLaunch, LaunchGeometry,
    ModuleCache, PrewarmError, Stream,
};

use crate::device::assert_works;
use crate::device::{Device, device_of, driver_of};
use crate::ptx::{SCALE, image, requirements, warm};

const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

/// A simulator and a device of it.
fn bench() -> (Arc<Simulator>, Device) {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    (simulator, device)
}

#[test]
fn everything_is_handed_back() {
    let (simulator, device) = bench();
    {
        let (modules, function) = warm(&device.context, SCALE, "scale");
        let buffer = DeviceBuffer::from_slice(&device.stream, &[1.0_f32; 64]).unwrap();
        let arguments = KernelArguments::new().address(buffer.address()).u32(64).f32(2.0);
        let geometry = LaunchGeometry::linear(1, 64);
        let launch = KernelLaunch::new(&function, geometry, &arguments);
        let graph = device.stream.capture(CaptureMode::ThreadLocal, |capturing| {
            capturing.keep(buffer.owner());
            drop(modules);
            // SAFETY: the arguments match the function; the graph keeps the buffer.
            unsafe { capturing.launch(&launch) }
        });
        let mut exec = graph.unwrap().instantiate().unwrap();
        exec.launch(&device.stream).unwrap();
    }
    drop(device);
    let live = simulator.live();
    assert!(live.is_empty(), "{live} left");
}

#[test]
fn a_graph_that_does_not_fit_is_tried_again_after_a_trim() {
    let (simulator, device) = bench();
    let graph = Graph::new(&device.context).unwrap();
    simulator.fail("cuGraphInstantiateWithFlags", 1, OUT_OF_MEMORY).unwrap();
    graph.instantiate().unwrap();
    assert_eq!(simulator.call_count("cuDeviceGraphMemTrim"), 1);
    for nth in [1, 2] {
        simulator.fail("cuGraphInstantiateWithFlags", nth, OUT_OF_MEMORY).unwrap();
    }
    let error = graph.instantiate().unwrap_err();
    assert!(error.call().unwrap().is_out_of_memory(), "it is tried once more and no oftener");
    assert_eq!(simulator.call_count("cuGraphInstantiateWithFlags"), 4);
}

#[test]
fn a_capture_that_cannot_begin_leaves_the_stream_usable() {
    let (simulator, device) = bench();
    simulator.fail("cuStreamBeginCapture_v2", 1, CUresult::CUDA_ERROR_UNKNOWN).unwrap();
    let captured = device.stream.capture(CaptureMode::ThreadLocal, |_| Ok::<_, Error>(()));
    let error = captured.unwrap_err();
    assert_eq!(error.first.as_ref().unwrap().error.call, "cuStreamBeginCapture_v2");
    assert!(error.recovered && error.end.is_none(), "{error}");
    assert_works(&device.stream);
}

#[test]
fn a_failing_launch_is_the_first_cause_even_when_the_capture_survives_it() {
    let (simulator, device) = bench();
    let buffer = DeviceBuffer::<u32>::zeroed(&device.context, 4).unwrap();
    simulator.fail("cuMemsetD32Async", 1, CUresult::CUDA_ERROR_INVALID_VALUE).unwrap();
    let captured = device.stream.capture(CaptureMode::ThreadLocal, |capturing| {
        capturing.at("the gradients");
        // SAFETY: the graph is never launched.
        let _ = unsafe { capturing.stream().memset_d32(buffer.address(), 0, 4) };
        Ok::<_, Error>(())
    });
    let error = captured.unwrap_err();
    let first = error.first.as_ref().unwrap();
    assert_eq!((first.place.as_str(), first.error.code.0), ("the gradients", 1));
    assert_eq!(error.end, Some(CUresult::CUDA_SUCCESS), "a graph without a node is no success");
    assert!(error.recovered);
    assert_eq!(simulator.live().graphs, 0);
    assert_works(&device.stream);
}

#[test]
fn a_stream_that_does_not_leave_its_capture_is_retired() {
    let (simulator, device) = bench();
    let capture = || device.stream.capture(CaptureMode::ThreadLocal, |_| Ok::<_, Error>(()));
    simulator.fail("cuStreamEndCapture", 1, CUresult::CUDA_ERROR_UNKNOWN).unwrap();
    let error = capture().unwrap_err();
    assert!(error.recovered, "the end is tried once more: {error}");
    assert_eq!(error.first.unwrap().error.call, "cuStreamEndCapture");
    assert_works(&device.stream);

    for nth in [1, 2] {
        simulator.fail("cuStreamEndCapture", nth, CUresult::CUDA_ERROR_UNKNOWN).unwrap();
    }
    let error = capture().unwrap_err();
    assert!(!error.recovered, "{error}");
    assert_eq!(device.stream.synchronize().unwrap_err(), Error::StreamRetired);
    assert_eq!(capture().unwrap_err().cause.unwrap().to_string(), Error::StreamRetired.to_string());
    drop(device.stream);
    assert_works(&Stream::new(&device.context).unwrap());
}

#[test]
fn resources_that_the_driver_does_not_free_are_retried_and_then_given_up() {
    let (simulator, device) = bench();
    let before = simulator.live();
    let drop_one = || drop(DeviceBuffer::<u32>::zeroed(&device.context, 8).unwrap());
    let fail = |nth| simulator.fail("cuMemFree_v2", nth, CUresult::CUDA_ERROR_UNKNOWN).unwrap();
    // At once, and after each later release, which is another call.
    [1, 2, 4].into_iter().for_each(fail);
    for waiting in [1, 1, 0] {
        drop_one();
        let left = simulator.live().allocations - before.allocations;
        assert_eq!((device.context.deferred_releases(), left), (waiting, waiting));
    }
    [1, 2, 4, 6].into_iter().for_each(fail);
    for waiting in [1, 1, 0, 0] {
        drop_one();
        assert_eq!(device.context.deferred_releases(), waiting);
        assert_eq!(simulator.live().allocations, before.allocations + 1, "it is never freed");
    }
    drop(device);
    assert!(simulator.live().is_empty(), "it goes with the context");
}

#[test]
fn an_image_that_failed_to_load_can_be_loaded_later() {
    let (simulator, device) = bench();
    let cache = ModuleCache::new(&device.context);
    let scale = image("scale", SCALE);
    simulator.fail("cuModuleLoadDataEx", 1, OUT_OF_MEMORY).unwrap();
    let error = cache.prewarm(&requirements(&scale, "scale"), |_| ()).unwrap_err();
    assert!(matches!(error, PrewarmError::Load { .. }), "{error}");
    cache.prewarm(&requirements(&scale, "scale"), |_| ()).unwrap();
    assert_eq!(cache.loaded(), 1);
}

#[test]
fn an_old_driver_lacks_parameter_sizes_and_works() {
    let mut config = Config::default();
    config.driver_version = 12000;
    let device = device_of(&crate::device::simulated(config));
    let (_modules, function) = warm(&device.context, SCALE, "scale");
    assert_eq!(function.parameter_sizes(), None);
    assert_works(&device.stream);
}
