//! Modules: loaded once, ahead of time; errors contain the compiler's message.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use retrograph_driver_sim::Config;
use retrograph_kernels::ops::MEAN;
use retrograph_kernels::{all, images};
use retrograph_runtime::modules::image_target;
use retrograph_runtime::{
    DeviceBuffer, Error, KernelArguments, KernelLaunch, LaunchGeometry, ModuleCache, PrewarmError,
    Requirements,
};

use crate::device::{device, device_of, simulated};
use crate::ptx::{BROKEN, SCALE, image, requirements, warm};
use crate::support::with;

#[test]
fn every_kernel_of_the_workspace_becomes_warm() {
    let device = device();
    let mut requirements = Requirements::default();
    all().iter().for_each(|kernel| requirements.insert(kernel));
    let target = image_target(&device.context).unwrap();
    let entries = requirements.entries(target).into_iter();
    let total = entries.map(|(kernel, entry)| (kernel.image, entry)).collect::<HashSet<_>>().len();
    let mut seen = Vec::new();
    let modules = ModuleCache::new(&device.context)
        .prewarm(&requirements, |progress| {
            assert_eq!(progress.total, total);
            seen.push((progress.done, progress.image.to_owned()));
        })
        .unwrap();
    assert_eq!(seen.len(), total);
    assert!(seen.iter().enumerate().all(|(index, (done, _))| *done == index + 1));
    for kernel in all() {
        let there = |entry: &&&str| images::has_entry(kernel.image, entry, target);
        for entry in kernel.entries.iter().filter(there) {
            let function = modules.function(kernel.image, entry).unwrap();
            let spilled = function.local_bytes();
            assert!(spilled <= images::max_spilled_bytes(entry), "{entry} spills {spilled} bytes");
            let said = function.parameter_sizes().unwrap();
            assert_eq!(said.len(), kernel.parameters.len(), "{entry}");
            for (index, said) in said.iter().enumerate() {
                let Some(ask) = device.context.table().cuFuncGetParamInfo else { break };
                let (mut offset, mut size) = (0, 0);
                // SAFETY: the function is warm, and both out pointers are valid.
                let code = unsafe { ask(function.raw(), index, &mut offset, &mut size) };
                assert_eq!((code.0, size), (0, *said), "parameter {index} of {entry}");
            }
        }
    }
    assert_eq!(modules.report().images.len(), total);
}

#[test]
fn a_device_older_than_every_kernel_is_refused_with_both() {
    let mut config = Config::default();
    config.compute_capability = (6, 1);
    let cache = ModuleCache::new(&device_of(&simulated(config)).context);
    let mut requirements = Requirements::default();
    requirements.insert(&MEAN);
    let refused = cache.prewarm(&requirements, |_| ()).unwrap_err();
    assert!(matches!(refused, PrewarmError::UnsupportedDevice(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("6.1") && text.contains("sm_75") && text.contains("own PTX"), "{text}");
}

#[test]
fn a_function_that_is_not_warm_is_refused_by_name_and_counted() {
    let device = device();
    let cache = ModuleCache::new(&device.context);
    let warm_image = image("scale", SCALE);
    let modules = cache.prewarm(&requirements(&warm_image, "scale"), |_| ()).unwrap();
    modules.function(&warm_image, "scale").unwrap();
    assert_eq!(cache.jit_after_warm(), 0);
    let error = modules.function("softmax", "softmax_forward").unwrap_err();
    assert_eq!((error.image.as_str(), error.kernel.as_str()), ("softmax", "softmax_forward"));
    let other = image("scale", &format!("{SCALE}\n// another text"));
    assert!(modules.function(&other, "scale").is_err(), "the name alone does not make it warm");
    assert_eq!(cache.jit_after_warm(), 2);
}

#[test]
fn the_compilers_message_is_part_of_the_error() {
    let device = device();
    let broken = image("broken", BROKEN);
    let cache = ModuleCache::new(&device.context);
    let error = cache.prewarm(&requirements(&broken, "broken"), |_| ()).unwrap_err();
    let PrewarmError::Load { image, error: cause, log } = &error else { panic!("{error}") };
    assert_eq!(image, "broken");
    assert_eq!(cause.call().unwrap().code.0, 218, "{cause}");
    let place = if device.context.driver().is_simulated() { "7:5" } else { "line 7" };
    assert!(log.contains(place), "the log does not say where: {log}");
    assert!(error.to_string().contains(log.as_str()));
    assert_eq!(cache.loaded(), 0);
}

#[test]
fn a_missing_entry_point_is_named() {
    let device = device();
    let scale = image("scale", SCALE);
    let cache = ModuleCache::new(&device.context);
    let error = cache.prewarm(&requirements(&scale, "shrink"), |_| ()).unwrap_err();
    let PrewarmError::Entry { image, entry, error } = error else { panic!("{error}") };
    assert_eq!((image.as_str(), entry.as_str()), ("scale", "shrink"));
    assert!(matches!(&error, Error::NoEntryPoint { name, .. } if name == "shrink"), "{error}");
    assert_eq!(error.call().unwrap().code.0, 500);
}

#[test]
fn ptx_with_a_zero_byte_does_not_reach_the_driver() {
    let device = device();
    let cut = image("cut", &format!("{SCALE}\0{BROKEN}"));
    let cache = ModuleCache::new(&device.context);
    let error = cache.prewarm(&requirements(&cut, "scale"), |_| ()).unwrap_err();
    assert!(matches!(error, PrewarmError::Load { error: Error::BadImage { .. }, .. }), "{error}");
}

#[test]
fn threads_that_want_the_same_image_load_it_once() {
    let device = device();
    let cache = ModuleCache::new(&device.context);
    let scale = image("scale", SCALE);
    let warmed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let modules = cache.prewarm(&requirements(&scale, "scale"), |_| ()).unwrap();
                modules.function(&scale, "scale").unwrap();
                warmed.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!((warmed.into_inner(), cache.loaded()), (4, 1));
}

#[test]
fn a_function_keeps_its_module_loaded() {
    let device = device();
    let (modules, function) = warm(&device.context, SCALE, "scale");
    drop(modules);
    let buffer = DeviceBuffer::from_slice(&device.stream, &[1.5_f32; 4]).unwrap();
    let arguments = KernelArguments::new().address(buffer.address()).u32(4).f32(2.0);
    let geometry = LaunchGeometry::linear(1, 32);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // SAFETY: the arguments match the function, for a live buffer.
    unsafe { device.stream.launch(&launch) }.unwrap();
    assert_eq!(buffer.download(&device.stream).unwrap(), [3.0; 4]);
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_the_launch() {
    let device = device();
    let (_modules, function) = warm(&device.context, SCALE, "scale");
    if function.parameter_sizes().is_none() {
        return;
    }
    let refused = |arguments: KernelArguments| {
        let geometry = LaunchGeometry::linear(1, 32);
        let launch = KernelLaunch::new(&function, geometry, &arguments);
        // SAFETY: nothing is launched, since the arguments do not fit.
        unsafe { device.stream.launch(&launch) }.unwrap_err()
    };
    let function = || "scale".to_owned();
    let error = refused(KernelArguments::new().address(0).u64(4).f32(2.0));
    let (expected, found) = (4, 8);
    assert_eq!(error, Error::ArgumentMismatch { function: function(), index: 1, expected, found });
    let error = refused(KernelArguments::new().address(0).u32(4));
    assert_eq!(error, Error::MissingArgument { function: function(), index: 2, expected });
    let error = refused(KernelArguments::new().address(0).u32(4).f32(2.0).f32(2.0));
    assert_eq!(error, Error::ExtraArgument { function: function(), parameters: 3 });
}

#[test]
fn a_plan_that_does_not_fit_is_refused_before_anything_is_uploaded() {
    let driver = simulated(with(Config::default(), |it| it.memory_bytes = 64 << 20));
    let device = device_of(&driver);
    let (modules, _) = warm(&device.context, SCALE, "scale");
    assert!(modules.report().free_after <= modules.report().free_before);
    modules.check_memory(1 << 20).unwrap();
    let error = modules.check_memory(65 << 20).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 65 << 20));
}
