//! GeGLU and its gradients against their references.

use std::f64::consts::PI;

use half::bf16;
use retrograph_kernels::elementwise::reference::gelu::{
    geglu, geglu_backward, gelu, gelu_derivative,
};
use retrograph_kernels::ops::{GatedActivation, Glu, GluBackward};

use crate::elementwise::{
    Bf16, EDGES, F32, Gate, LENGTHS, gated_from_bf16_is_within_its_bound, run,
};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles};

/// The tolerance for values of magnitude `scale`: relative errors of σ(z) grow with −z, so tiny
/// values are compared absolutely.
fn tolerance(scale: f32) -> Tolerance {
    Tolerance::relative(3e-6).absolute(1e-7 * f64::from(scale))
}

fn forward(gate: &[f32], up: &[f32]) -> Vec<f32> {
    let activation = GatedActivation::GeluTanh;
    let launch =
        |i: &[F32], o: &[F32]| Glu { activation, gate: i[0], up: i[1], out: o[0] }.launch();
    run(&[gate, up], 1, launch).remove(0)
}

fn gradients(gate: &[f32], up: &[f32], grad_out: &[f32]) -> Vec<Vec<f32>> {
    let activation = GatedActivation::GeluTanh;
    run(&[gate, up, grad_out], 2, |i, o| {
        let (gate, up, grad_out) = (i[0], i[1], i[2]);
        GluBackward { activation, gate, up, grad_out, grad_gate: o[0], grad_up: o[1] }.launch()
    })
}

#[test]
fn geglu_matches_its_reference_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("geglu");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30].into_iter().cycle()) {
        let (gate, up) = (data.uniform(len, 12.0), data.uniform(len, scale));
        let expected = geglu(&doubles(&gate), &doubles(&up));
        tolerance(scale).check(&forward(&gate, &up), &expected, "geglu");
    }
    let ones = [1.0; EDGES.len()];
    let expected: Vec<f64> = EDGES.iter().map(|&x| gelu(x.into())).collect();
    tolerance(1.0).check(&forward(&EDGES, &ones), &expected, "geglu at the edges");
}

#[test]
fn geglu_backward_matches_its_reference_and_differences() {
    let mut data = Data::new("geglu_backward");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30].into_iter().cycle()) {
        let (gate, up) = (data.uniform(len, 8.0), data.uniform(len, 2.0));
        let grad = data.uniform(len, scale);
        let actual = gradients(&gate, &up, &grad);
        let (gate, up, grad) = (doubles(&gate), doubles(&up), doubles(&grad));
        let (grad_gate, grad_up) = geglu_backward(&gate, &up, &grad);
        let near = Tolerance::relative(3e-6).absolute(3e-6 * f64::from(scale));
        near.check(&actual[0], &grad_gate, "grad_gate");
        tolerance(scale).check(&actual[1], &grad_up, "grad_up");
        if len <= 127 {
            let total = |out: &[f64]| out.iter().zip(&grad).map(|(y, g)| y * g).sum::<f64>();
            let near = Tolerance::relative(1e-5).absolute(1e-5 * f64::from(scale));
            let of_gate = differences(&gate, 1e-4, |gate| total(&geglu(gate, &up)));
            near.check(&actual[0], &of_gate, "differences of gate");
            let of_up = differences(&up, 1e-4, |up| total(&geglu(&gate, up)));
            near.check(&actual[1], &of_up, "differences of up");
        }
    }
    // For large |x| the derivative is 0 or 1, not the NaN of 0 times infinity.
    let gate = [16.0, 17.0, 1e4, 1e30, f32::MAX, -16.0, -17.0, -1e4, -1e30, f32::MIN];
    let ones = [1.0; 10];
    let slopes = gradients(&gate, &ones, &ones).remove(0);
    assert_eq!(slopes, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(gradients(&[f32::NAN], &[1.0], &[1.0]).concat().iter().all(|x| x.is_nan()));
}

#[test]
fn geglu_from_bf16_is_within_its_bound_of_geglu_from_the_same_numbers() {
    let launches = |[gate, up, grad_out]: [Bf16; 3], [out, grad_gate, grad_up]: [F32; 3]| {
        let activation = GatedActivation::GeluTanh;
        let backward = GluBackward { activation, gate, up, grad_out, grad_gate, grad_up };
        [Glu { activation, gate, up, out }.launch(), backward.launch()]
    };
    gated_from_bf16_is_within_its_bound("geglu in bf16", 2f64.powi(-15), launches, |x| {
        let z = (8.0 / PI).sqrt() * (x + 0.044_715 * x.powi(3));
        let sigmoid = 1.0 / (1.0 + (-z).exp());
        // Beyond 16, σ is 0 or 1.
        let nearest = x.clamp(-16.0, 16.0);
        let slope = 1.0 + 2.0 * (nearest * (1.6 + 0.22 * nearest * nearest)).abs();
        Gate { sigmoid, derivative: [gelu_derivative(x), slope] }
    });
    let device = Device::new();
    // For large |x| the derivative is 0 or 1, not the NaN of 0 times infinity.
    let values = [16.0, 17.0, 1e4, 1e30, -16.0, -17.0, -1e4, -1e30].map(bf16::from_f32);
    let ones = device.upload(&[bf16::ONE; 8]);
    let [grad_gate, grad_up] = [0; 2].map(|_| device.unwritten(8));
    let (activation, gate) = (GatedActivation::GeluTanh, device.upload(&values));
    let backward = GluBackward { activation, gate, up: ones, grad_out: ones, grad_gate, grad_up };
    device.run(&backward.launch().unwrap());
    assert_eq!(device.download(grad_gate), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}
