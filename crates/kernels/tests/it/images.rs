//! Images match their descriptors.

use std::collections::{BTreeMap, BTreeSet};

use retrograph_kernels::{ParameterKind, Problem, SmTarget, images};
use retrograph_ptx::ast::{Entry, Module, Type};
use retrograph_ptx::parse;

/// An image without the instructions of its entries, which parses faster.
fn signatures(image: &str, target: SmTarget) -> Module {
    let text = images::ptx(image, target).expect("an image for every name and target");
    let mut inside = false;
    let outside = text.lines().filter(|line| {
        inside &= *line != "}";
        let keeps = !inside;
        inside |= *line == "{";
        keeps
    });
    let module = parse(&outside.collect::<Vec<_>>().join("\n")).expect("images parse");
    assert!(module.entries.iter().all(|entry| entry.body.is_empty()), "{image} for {target}");
    module
}

/// The parameters of an entry as descriptors have them.
fn parameters(entry: &Entry) -> Vec<(&str, Type)> {
    entry.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter.ty)).collect()
}

#[test]
fn every_entry_has_the_parameters_and_threads_of_its_kernel() {
    for (target, image) in SmTarget::GENERATED.iter().flat_map(|t| images::names().map(|i| (*t, i)))
    {
        let module = signatures(image, target);
        assert_eq!(module.target, target);
        for kernel in retrograph_kernels::all().iter().filter(|kernel| kernel.image == image) {
            let declared = kernel.parameters.iter().map(|parameter| match parameter.kind {
                ParameterKind::Pointer | ParameterKind::U64 => (parameter.name, Type::U64),
                ParameterKind::U32 => (parameter.name, Type::U32),
                ParameterKind::F32 => (parameter.name, Type::F32),
                ParameterKind::TensorMap => (parameter.name, Type::B8),
            });
            let declared: Vec<_> = declared.collect();
            for name in kernel.entries {
                let Some(entry) = module.entry(name) else {
                    let has = |other: &SmTarget| images::has_entry(image, name, *other);
                    assert!(SmTarget::GENERATED.iter().any(has), "{kernel:?}: no {name}");
                    continue;
                };
                assert!(images::has_entry(image, name, target));
                assert_eq!(parameters(entry), declared, "{name}");
            }
        }
    }
}

#[test]
fn no_launch_has_more_threads_than_its_entry_allows() {
    let sizes = [1, 33, 128, 200, 1500, 40_000];
    let target = SmTarget::arch_specific(90);
    let problems = Problem::samples(&sizes);
    let modules: BTreeMap<_, _> =
        images::names().map(|image| (image, signatures(image, target))).collect();
    for kernel in retrograph_kernels::all() {
        for problem in &problems {
            let Some(dispatch) = (kernel.dispatch)(problem, target) else { continue };
            let entry = modules[kernel.image].entry(dispatch.entry);
            let entry = entry.unwrap_or_else(|| panic!("{kernel:?}: no {}", dispatch.entry));
            // An entry without its own limit obeys the limits of every device.
            let most = entry.limits.max_threads.unwrap_or([1024, 1024, 64]);
            for (threads, most) in dispatch.block.iter().zip(most) {
                assert!(*threads <= most, "{kernel:?} {problem:?}: {dispatch:?}");
            }
        }
    }
}

#[test]
fn every_image_belongs_to_a_kernel_and_names_are_unique() {
    let used: BTreeSet<_> = retrograph_kernels::all().iter().map(|kernel| kernel.image).collect();
    let embedded: BTreeSet<_> = images::names().collect();
    assert_eq!(used, embedded);
    assert_eq!(images::names().count(), embedded.len());
    let names: BTreeSet<_> = retrograph_kernels::all().iter().map(|kernel| kernel.name).collect();
    assert_eq!(names.len(), retrograph_kernels::all().len());
}

#[test]
fn digests_match_the_texts() {
    use sha2::{Digest, Sha256};

    for (target, image) in SmTarget::GENERATED.iter().flat_map(|t| images::names().map(|i| (*t, i)))
    {
        let expected: [u8; 32] = Sha256::digest(images::ptx(image, target).unwrap()).into();
        assert_eq!(images::digest(image, target), Some(expected), "{image} for {target}");
        assert!(images::is_unpacked(image, target), "{image} for {target}");
    }
    assert_eq!(images::digest("no such image", SmTarget::arch_specific(90)), None);
}

#[test]
fn an_image_cut_to_an_entry_has_this_entry_and_all_declarations() {
    use sha2::{Digest, Sha256};

    let target = SmTarget::arch_specific(90);
    for image in images::names() {
        let whole = parse(images::ptx(image, target).unwrap()).unwrap();
        for entry in &whole.entries {
            let cut = images::entry_ptx(image, &entry.name, target).unwrap();
            let digest: [u8; 32] = Sha256::digest(&cut).into();
            assert_eq!(images::entry_digest(image, &entry.name, target), Some(digest));
            let module = parse(&cut).expect("a cut image parses");
            assert_eq!(module.entries, std::slice::from_ref(entry));
            assert_eq!((module.isa, module.target), (whole.isa, whole.target));
            assert_eq!(module.variables, whole.variables);
            assert_eq!(module.functions, whole.functions);
        }
    }
    assert_eq!(images::entry_ptx("softmax", "mean", target), None);
    assert_eq!(
        images::entry_ptx("softmax", "softmax_warp_per_row", SmTarget::arch_specific(70)),
        None
    );
}

#[test]
fn targets_that_are_not_generated_have_no_image() {
    assert!(images::ptx("softmax", SmTarget::portable(90)).is_none());
    assert!(images::ptx("softmax", SmTarget::portable(70)).is_none());
    assert!(images::ptx("no such image", SmTarget::arch_specific(90)).is_none());
}
