//! Two devices in one process: each has its own modules, programs and captures.

use std::sync::{Arc, Barrier};
use std::thread;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::CUresult;
use retrograph_runtime::{
    BuildError, CaptureMode, DeviceBuffer, Error, Event, ModuleCache, Policy, Program, Strategy,
};

use crate::device::{Device, driver_of, two_devices, two_devices_of};
use crate::support::with;
use crate::tally::Tally;

const STEPS: u32 = 20;

/// Warms, builds and steps on one device, and returns the state after the steps.
fn train(device: &Device, policy: Policy) -> Vec<u32> {
    let Device { context, stream } = device;
    let tally = Tally::new();
    let cache = ModuleCache::new(context);
    let modules = cache.prewarm(&tally.pass.requirements(), |_| ()).unwrap();
    assert_eq!(cache.loaded(), 2, "what the other device has loaded is of no use here");
    let buffers = tally.buffers(context).unwrap();
    let bindings = tally.bindings(&buffers);
    let mut program = Program::build(stream, &modules, &tally.pass, &bindings, policy).unwrap();
    for step in 0..STEPS {
        program.step(stream, &tally.controls(step)).unwrap();
    }
    buffers.state(stream).unwrap()
}

#[test]
fn programs_run_on_two_devices_at_a_time() {
    let devices = two_devices();
    let expected = train(&devices[0], Policy::Eager);
    let start = Barrier::new(2);
    for policy in [Policy::Manual, Policy::Capture, Policy::Eager] {
        let states = thread::scope(|scope| {
            let run = |device| {
                start.wait();
                train(device, policy)
            };
            let threads = devices.each_ref().map(|device| scope.spawn(move || run(device)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(states.iter().all(|state| *state == expected), "{policy:?}");
    }
}

#[test]
fn one_thread_alternates_between_two_devices() {
    let devices = two_devices();
    let tally = Tally::new();
    let mut programs = devices.each_ref().map(|Device { context, stream }| {
        let cache = ModuleCache::new(context);
        let modules = cache.prewarm(&tally.pass.requirements(), |_| ()).unwrap();
        let buffers = tally.buffers(context).unwrap();
        let bindings = tally.bindings(&buffers);
        let built = Program::build(stream, &modules, &tally.pass, &bindings, Policy::Auto);
        (built.unwrap(), buffers)
    });
    for step in 0..STEPS {
        for (device, (program, _)) in devices.iter().zip(&mut programs) {
            let done = program.step(&device.stream, &tally.controls(step)).unwrap();
            assert_eq!(done.strategy, Strategy::Manual);
        }
    }
    let states = [0, 1].map(|at| programs[at].1.state(&devices[at].stream).unwrap());
    assert_eq!(states[0], states[1]);
    assert_eq!(states[0], train(&devices[1], Policy::Eager));
}

#[test]
fn a_buffer_of_another_device_is_refused() {
    let [here, there] = two_devices();
    let wrong = |error: Error| assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    let buffer = DeviceBuffer::<u32>::zeroed(&there.context, 32).unwrap();
    wrong(buffer.download(&here.stream).unwrap_err());
    wrong(here.stream.wait(&Event::untimed(&there.context).unwrap()).unwrap_err());
    let tally = Tally::new();
    let build = |modules: &Device, buffers: &Device| {
        let buffers = tally.buffers(&buffers.context).unwrap();
        let (cache, bindings) = (ModuleCache::new(&modules.context), tally.bindings(&buffers));
        let modules = cache.prewarm(&tally.pass.requirements(), |_| ()).unwrap();
        let built = Program::build(&here.stream, &modules, &tally.pass, &bindings, Policy::Auto);
        built.map(drop)
    };
    build(&here, &here).unwrap();
    for (modules, buffers) in [(&there, &here), (&here, &there)] {
        let error = build(modules, buffers).unwrap_err();
        let BuildError::Device(error) = error else { panic!("{error}") };
        wrong(error);
    }
}

#[test]
fn a_capture_on_one_device_does_not_block_the_other() {
    let [here, there] = two_devices();
    let graph = here.stream.capture(CaptureMode::ThreadLocal, |_| {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                drop(DeviceBuffer::<u32>::zeroed(&there.context, 32).unwrap());
                there.context.synchronize().unwrap();
                there.context.deferred_releases()
            });
            assert_eq!(other.join().unwrap(), 0, "freed at once");
        });
        Ok::<_, Error>(())
    });
    graph.unwrap();
}

#[test]
fn a_fault_on_one_device_also_loses_the_other() {
    let simulator = Simulator::new(with(Config::default(), |it| it.devices = 2)).unwrap();
    let simulator = Arc::new(simulator);
    let driver = driver_of(&simulator).unwrap();
    let [here, there] = two_devices_of(&driver);
    simulator.fail("cuStreamSynchronize", 1, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).unwrap();
    assert!(matches!(here.stream.synchronize(), Err(Error::ContextLost { .. })));
    // As recorded on hardware. The context of the other device learns of it by its next call.
    assert!(here.context.lost().is_some() && there.context.lost().is_none());
    assert!(matches!(there.stream.synchronize(), Err(Error::ContextLost { .. })));
    drop((here, there));
    assert!(simulator.live().is_empty(), "{} left", simulator.live());
}
