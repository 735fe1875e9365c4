//! Prewarming compiles and looks up only the entry points that the launches of a pass use; others
//! are refused by name.

use std::sync::Arc;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_kernels::ops::{SOFTMAX, SoftmaxInPlace, SoftmaxMask};
use retrograph_kernels::{Kernel, SmTarget, images};
use retrograph_runtime::modules::image_target;
use retrograph_runtime::{
    Bindings, BuildError, DeviceBuffer, ModuleCache, Pass, Policy, Program, Requirements, Slice,
    WarmModules,
};

use crate::device::{Device, device, device_of, driver_of, simulated};
use crate::support::with;
use crate::warm_places::{files, on_disk};

/// A width for which a warp covers a row, and one for which a block does.
const WIDTHS: [usize; 2] = [33, 1500];

/// The softmax of two rows of `width`.
fn softmax(width: usize) -> (Pass, Slice<f32>) {
    let mut pass = Pass::new("softmax");
    let values = pass.external::<f32>("values", 2 * width);
    let softmax = SoftmaxInPlace { values, rows: 2, width, mask: SoftmaxMask::None };
    pass.launch(softmax.launch().unwrap()).unwrap();
    (pass, values)
}

/// Builds the pass of `width` and does a step.
fn run(device: &Device, modules: &WarmModules, width: usize) -> Result<Vec<f32>, BuildError> {
    let (pass, values) = softmax(width);
    let buffer = DeviceBuffer::from_slice(&device.stream, &vec![1.0_f32; 2 * width]).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(values, &buffer);
    let mut program = Program::build(&device.stream, modules, &pass, &bindings, Policy::Manual)?;
    program.step(&device.stream, &pass.controls()).unwrap();
    Ok(buffer.download(&device.stream).unwrap())
}

fn names(requirements: &Requirements, device: &Device) -> Vec<&'static str> {
    let target = image_target(&device.context).unwrap();
    requirements.entries(target).into_iter().map(|(_, entry)| entry).collect()
}

#[test]
fn a_pass_warms_what_it_launches_and_names_what_another_size_would_need() {
    let device = device();
    let [narrow, wide] = WIDTHS.map(|width| softmax(width).0.requirements());
    assert_eq!(names(&narrow, &device), ["softmax_warp_per_row"]);
    assert_eq!(names(&wide, &device), ["softmax_block_per_row"]);
    let cache = ModuleCache::new(&device.context);
    let modules = cache.prewarm(&narrow, |_| ()).unwrap();
    assert_eq!((modules.len(), modules.report().images[0].kernels.len()), (1, 1));
    assert_eq!(run(&device, &modules, WIDTHS[0]).unwrap(), [1.0 / 33.0; 66]);
    let error = run(&device, &modules, WIDTHS[1]).unwrap_err();
    let BuildError::Cold { cause: cold, .. } = error else { panic!("{error}") };
    assert_eq!((cold.image.as_str(), cold.kernel.as_str()), ("softmax", "softmax_block_per_row"));
    assert_eq!(cache.jit_after_warm(), 1);
    // The union has the kernels of both. The second entry point is loaded next to the first.
    let both = cache.prewarm(&narrow.union(&wide), |_| ()).unwrap();
    assert_eq!((both.len(), cache.loaded()), (2, 2));
    assert_eq!(both.report().sources(), "1 memory, 1 jit");
    run(&device, &both, WIDTHS[1]).unwrap();
    assert_eq!(cache.jit_after_warm(), 1);
}

#[test]
fn a_kernel_that_is_launched_without_a_pass_is_warm_as_a_whole() {
    let device = device();
    let mut requirements = softmax(WIDTHS[0]).0.requirements();
    requirements.insert(&SOFTMAX);
    assert_eq!(names(&requirements, &device), SOFTMAX.entries);
    assert_eq!((requirements.kernels().len(), requirements.images()), (1, vec!["softmax"]));
    let modules = ModuleCache::new(&device.context).prewarm(&requirements, |_| ()).unwrap();
    WIDTHS.iter().for_each(|width| drop(run(&device, &modules, *width).unwrap()));
}

#[test]
fn each_entry_point_is_compiled_and_kept_without_the_others_of_its_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let device = device_of(&simulated(Default::default()));
    let [narrow, wide] = WIDTHS.map(|width| softmax(width).0.requirements());
    let sources = |requirements: &Requirements| {
        let cache = ModuleCache::with(&device.context, on_disk(&path));
        cache.prewarm(requirements, |_| ()).unwrap().report().sources()
    };
    assert_eq!((sources(&narrow).as_str(), sources(&narrow).as_str()), ("1 jit", "1 disk"));
    // The code of the simulator is PTX.
    let [kept] = &files(&path)[..] else { panic!("one file is written") };
    let kept = String::from_utf8_lossy(&std::fs::read(kept).unwrap()).into_owned();
    assert!(kept.contains(".entry softmax_warp_per_row("), "{kept}");
    assert!(!kept.contains(".entry softmax_block_per_row("), "{kept}");
    assert_eq!(sources(&wide), "1 jit", "the other entry point is under a key of its own");
    assert_eq!(sources(&narrow.union(&wide)), "2 disk");
    assert_eq!(files(&path).len(), 2);
}

#[test]
fn a_whole_kernel_has_the_entry_points_of_the_device() {
    let target = SmTarget::GENERATED[0];
    let has = |kernel: &Kernel, entry: &str| images::has_entry(kernel.image, entry, target);
    let some = |kernel: &&&Kernel| {
        let there = kernel.entries.iter().filter(|entry| has(kernel, entry)).count();
        there > 0 && there < kernel.entries.len()
    };
    let kernel = retrograph_kernels::all().iter().find(some).unwrap();
    let compute_capability = (target.number / 10, target.number % 10);
    let device = device_of(&simulated(with(Config::default(), |it| {
        it.compute_capability = compute_capability
    })));
    let mut requirements = Requirements::default();
    requirements.insert(kernel);
    let warm = ModuleCache::new(&device.context).prewarm(&requirements, |_| ()).unwrap();
    for entry in kernel.entries {
        assert_eq!(warm.function(kernel.image, entry).is_ok(), has(kernel, entry), "{entry}");
    }
}

#[test]
fn an_entry_point_is_looked_up_by_one_call_and_its_traits_by_one_each() {
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    let cache = ModuleCache::new(&device.context);
    let before = simulator.calls();
    cache.prewarm(&softmax(WIDTHS[0]).0.requirements(), |_| ()).unwrap();
    let count = |call| simulator.call_count(call) - before.get(call).copied().unwrap_or(0);
    assert_eq!((count("cuModuleLoadDataEx"), count("cuModuleGetFunction")), (1, 1));
    assert_eq!((count("cuFuncGetAttribute"), count("cuFuncSetAttribute")), (4, 1));
    let more = ["cuFuncGetParamInfo", "cuDeviceGetAttribute", "cuCtxSynchronize"];
    assert_eq!(more.map(count), [0; 3], "what is known is not asked");
}
