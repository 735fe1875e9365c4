//! Soft-capping and its gradient against their references.

use retrograph_kernels::KernelError;
use retrograph_kernels::elementwise::reference::softcap::{softcap, softcap_backward};
use retrograph_kernels::ops::{Softcap, SoftcapBackward};

use crate::elementwise::{EDGES, F32, LENGTHS, run};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles};

fn forward(x: &[f32], cap: f32) -> Vec<f32> {
    run(&[x], 1, |i, o| Softcap { x: i[0], y: o[0], cap }.launch()).remove(0)
}

fn gradient(y: &[f32], grad_out: &[f32], cap: f32) -> Vec<f32> {
    let launch = |i: &[F32], o: &[F32]| {
        SoftcapBackward { y: i[0], grad_out: i[1], grad_input: o[0], cap }.launch()
    };
    run(&[y, grad_out], 1, launch).remove(0)
}

/// The relative error of the kernel is below 2⁻²¹.
const RELATIVE: f64 = 5e-7;

#[test]
fn softcap_matches_its_reference_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("softcap");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30, 0.3, 60.0].into_iter().cycle()) {
        for cap in [30.0, 50.0, 1e-20, 1e20] {
            let x = data.uniform(len, scale);
            let expected = softcap(&doubles(&x), cap.into());
            Tolerance::relative(RELATIVE).check(&forward(&x, cap), &expected, "softcap");
        }
    }
    let expected = softcap(&doubles(&EDGES), 20.0);
    Tolerance::relative(RELATIVE).check(&forward(&EDGES, 20.0), &expected, "at the edges");
}

#[test]
fn softcap_backward_matches_its_reference_and_differences() {
    let mut data = Data::new("softcap_backward");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30].into_iter().cycle()) {
        let cap = 30.0;
        let (x, grad) = (data.uniform(len, 90.0), data.uniform(len, scale));
        let y = forward(&x, cap);
        let actual = gradient(&y, &grad, cap);
        let expected = softcap_backward(&doubles(&y), &doubles(&grad), cap.into());
        // `1 − (y / cap)²` cancels near the cap, where the square is rounded near 1.
        Tolerance::relative(1e-6).absolute(2e-7 * f64::from(scale)).check(&actual, &expected, "y");
        if len <= 127 {
            let (x, grad) = (doubles(&x), doubles(&grad));
            let total = |x: &[f64]| {
                softcap(x, cap.into()).iter().zip(&grad).map(|(y, g)| y * g).sum::<f64>()
            };
            // The gradient also has the error of y, which is relative to the cap.
            let near = Tolerance::relative(1e-5).absolute(1e-6 * f64::from(scale));
            near.check(&actual, &differences(&x, 1e-3, total), "differences");
        }
    }
    assert!(gradient(&[f32::NAN], &[1.0], 1.0)[0].is_nan());
    assert_eq!(gradient(&[30.0, -30.0], &[1.0, 1.0], 30.0), [0.0, 0.0]);
}

#[test]
fn a_cap_must_be_finite_and_above_0() {
    let device = Device::new();
    let (x, y) = (device.upload(&[1.0_f32]), device.unwritten(1));
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = Softcap { x, y, cap }.launch().unwrap_err();
        assert!(matches!(error, KernelError::Constant { .. }), "{error}");
        let error = SoftcapBackward { y, grad_out: x, grad_input: y, cap }.launch().unwrap_err();
        assert!(matches!(error, KernelError::Constant { .. }), "{error}");
    }
}
