//! Rebinding the cuBLAS handle of a program: later steps use the new handle, or the program is
//! unchanged, and each handle lives as long as steps use it.

use retrograph_runtime::{
    Bindings, BuildError, Cublas, DeviceBuffer, Error, Policy, Program, Rebound, Strategy,
    UpdateStrategy,
};

use crate::cublas::{Products, cublas, stand_in_for, with_stand_in};
use crate::device::{Device, device};
use crate::failing_programs::fallback;
use crate::programs::build;

const POLICIES: [Policy; 4] = [Policy::Eager, Policy::Hybrid, Policy::Capture, Policy::Auto];

/// A program of products, and the output of the library's product.
struct Case<'a> {
    device: &'a Device,
    products: Products,
    program: Program,
    theirs: DeviceBuffer<f32>,
}

impl<'a> Case<'a> {
    fn new(device: &'a Device, cublas: &Cublas, policy: Policy) -> Self {
        let products = Products::new(retrograph_runtime::CUBLAS_WORKSPACE_BYTES);
        let mut bindings = Bindings::new();
        for slice in [products.x, products.w, products.ours, products.sum] {
            let values = vec![0.5_f32; slice.len()];
            bindings.bind(slice, &DeviceBuffer::from_slice(&device.stream, &values).unwrap());
        }
        let theirs = DeviceBuffer::zeroed(&device.context, products.theirs.len()).unwrap();
        bindings.bind(products.theirs, &theirs).cublas(cublas);
        let program = build(device, &products.pass, &bindings, policy).unwrap();
        Self { device, products, program, theirs }
    }

    fn rebind(&mut self, least: UpdateStrategy, cublas: &Cublas) -> Result<Rebound, BuildError> {
        self.program.rebind_from(least, &self.device.stream, Bindings::new().cublas(cublas))
    }

    /// The library's product after a step.
    fn step(&mut self) -> Vec<f32> {
        let controls = self.products.pass.controls();
        self.program.step(&self.device.stream, &controls).unwrap();
        self.theirs.download(&self.device.stream).unwrap()
    }
}

#[test]
fn another_handle_does_the_products_from_then_on() {
    with_stand_in(|bench, first, held| {
        for policy in POLICIES {
            let (second, _) = stand_in_for(bench, 2.0);
            let mut case = Case::new(&bench.device, first, policy);
            assert!(case.step().iter().all(|value| *value == 1.0));
            let same = case.rebind(UpdateStrategy::KeepGraph, first).unwrap();
            assert_eq!(
                (same.handle, same.update, same.nodes),
                (false, UpdateStrategy::KeepGraph, 0)
            );
            let (mut eager, mut products) = (policy == Policy::Eager, [2.0, 1.0].into_iter());
            for (least, handle) in
                [(UpdateStrategy::KeepGraph, &second), (UpdateStrategy::Rebuild, first)]
            {
                let rebound = case.rebind(least, handle).unwrap();
                let update =
                    if eager { UpdateStrategy::KeepGraph } else { UpdateStrategy::Rebuild };
                assert_eq!(
                    (rebound.update, rebound.buffers),
                    (update, 0),
                    "{policy:?}: {rebound:?}"
                );
                assert!(rebound.handle && rebound.failed.is_empty(), "{rebound:?}");
                let product = products.next().unwrap();
                assert!(case.step().iter().all(|value| *value == product), "{policy:?}");
                eager = case.program.report().strategy == Strategy::Eager;
            }
            let controls = case.products.pass.controls();
            case.program.admit(&bench.device.stream, &controls).unwrap();
        }
        assert!(!held.lock().unwrap().calls.contains(&"destroy"));
    });
}

#[test]
fn a_handle_is_kept_until_no_step_uses_it() {
    with_stand_in(|bench, first, _| {
        for policy in POLICIES {
            let (second, held) = stand_in_for(bench, 2.0);
            let mut case = Case::new(&bench.device, &second, policy);
            drop(second);
            case.step();
            case.rebind(UpdateStrategy::Rebuild, first).unwrap();
            // The step after the rebind releases the handle of earlier steps.
            case.step();
            case.step();
            assert!(held.lock().unwrap().calls.contains(&"destroy"), "{policy:?}");
        }
    });
}

#[test]
fn a_handle_that_fails_leaves_the_old_one_or_shows_in_the_report() {
    with_stand_in(|bench, first, _| {
        let (second, held) = stand_in_for(bench, 2.0);
        held.lock().unwrap().status = 14;
        for policy in [Policy::Hybrid, Policy::Capture] {
            let mut case = Case::new(&bench.device, first, policy);
            let error = case.rebind(UpdateStrategy::KeepGraph, &second).unwrap_err();
            assert!(error.to_string().contains("cublasGemmEx returned 14"), "{error}");
            assert!(case.step().iter().all(|value| *value == 1.0), "{policy:?}");
        }
        let mut case = Case::new(&bench.device, first, Policy::Auto);
        let rebound = case.rebind(UpdateStrategy::KeepGraph, &second).unwrap();
        assert_eq!((rebound.strategy, rebound.handle), (Strategy::Eager, true));
        let (failure, _) = fallback(case.program.report());
        assert!(failure.to_string().contains("cublasGemmEx returned 14"), "{failure}");
        held.lock().unwrap().status = 0;
        assert!(case.step().iter().all(|value| *value == 2.0));
    });
}

#[test]
fn a_handle_of_another_context_is_refused() {
    with_stand_in(|bench, first, _| {
        let mut case = Case::new(&bench.device, first, Policy::Hybrid);
        let other = crate::failing_programs::Bench::new(0);
        let (wrong, _) = stand_in_for(&other, 2.0);
        let error = case.rebind(UpdateStrategy::KeepGraph, &wrong).unwrap_err();
        assert!(matches!(error, BuildError::Device(Error::WrongContext { .. })), "{error}");
        assert!(case.step().iter().all(|value| *value == 1.0));
    });
}

#[test]
fn two_handles_of_cublas_give_the_same_bits_by_every_update() {
    let device = device();
    let Some(first) = cublas(&device) else { return };
    let Some(second) = cublas(&device) else { return };
    let mut case = Case::new(&device, &first, Policy::Hybrid);
    let expected = case.step();
    for (least, handle) in [(UpdateStrategy::KeepGraph, &second), (UpdateStrategy::Rebuild, &first)]
    {
        assert!(case.rebind(least, handle).unwrap().handle);
        assert!(case.step() == expected, "{least:?}");
    }
}
