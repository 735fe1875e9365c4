//! AdamW and its schedule.

use half::bf16;
use retrograph_kernels::View;
use retrograph_kernels::ops::{AdamW, AdamWTensor, ClipGrads, Decay, LrSchedule, TensorView};
use retrograph_kernels::optimizer::reference::adamw::{AdamWConstants, AdamWState, LearningRate};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};

const RATE: LearningRate = LearningRate {
    peak_lr: 3e-3,
    min_lr: 1e-4,
    warmup_steps: 5,
    decay_start: 5,
    total_steps: 20,
    decay: Decay::Cosine,
};
const BETAS: (f64, f64) = (0.9, 0.999);
const EPS: f32 = 1e-8;

fn schedule(step: View<u64, u32>, scalars: View<u64, f32>, rate: LearningRate) -> LrSchedule<u64> {
    let LearningRate { peak_lr, min_lr, warmup_steps, decay_start, total_steps, decay } = rate;
    let (beta1, beta2) = BETAS;
    LrSchedule {
        step,
        scalars,
        peak_lr,
        min_lr,
        warmup_steps,
        decay_start,
        total_steps,
        decay,
        beta1,
        beta2,
    }
}

/// The scalars that the schedule writes for `step`.
fn scalars_at(step: u32, rate: LearningRate) -> Vec<f32> {
    let device = Device::new();
    let (step, scalars) = (device.upload(&[step]), device.upload(&[f32::NAN; 3]));
    device.run(&schedule(step, scalars, rate).launch().unwrap());
    device.download(scalars)
}

#[test]
fn the_schedule_matches_its_reference() {
    let rates = [
        RATE,
        LearningRate { warmup_steps: 0, decay_start: 0, ..RATE },
        LearningRate { warmup_steps: 9, decay_start: 9, total_steps: 4, ..RATE },
        LearningRate { min_lr: 0.0, warmup_steps: 1, total_steps: 100_000, ..RATE },
        LearningRate { total_steps: u32::MAX, decay_start: u32::MAX - 1, ..RATE },
        LearningRate { total_steps: u32::MAX, decay_start: u32::MAX, ..RATE },
        LearningRate { decay: Decay::Linear, ..RATE },
        LearningRate { decay: Decay::Linear, decay_start: 12, ..RATE },
        LearningRate { decay_start: 12, ..RATE },
    ];
    let steps = [0, 1, 3, 4, 5, 6, 12, 19, 20, 21, 999, 50_000, 99_999, 100_000, u32::MAX];
    for rate in rates {
        for step in steps {
            let t = f64::from(step) + 1.0;
            let lr = rate.at(step);
            let root = (1.0 - BETAS.1.powf(t)).sqrt();
            let expected = [lr, lr / (1.0 - BETAS.0.powf(t)), 1.0 / root];
            let actual = scalars_at(step, rate);
            // Rounding of f32, and of 1 + cos near the end of a schedule that decays to 0.
            let tolerance = Tolerance::relative(1.2e-7).absolute(1e-18);
            tolerance.check(&actual, &expected, &format!("step {step} of {rate:?}"));
            same_bits(&actual, &scalars_at(step, rate), "two runs");
        }
    }
    assert_eq!(scalars_at(0, RATE)[0], (3e-3 / 5.0) as f32);
}

/// A tensor with its gradient, moments and decay.
#[derive(Clone)]
struct Tensor {
    param: Vec<f32>,
    grad: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    /// The buffer of the copy, with [`MARGIN`] elements after it.
    copy: Option<Vec<bf16>>,
    weight_decay: f32,
    /// Whether the gradient, whose values are exact in bf16, is stored as bf16.
    bf16_grad: bool,
}

/// Elements that follow a copy in its buffer.
const MARGIN: usize = 3;
/// The contents of a copy before the update.
const POISON: bf16 = bf16::MAX;

impl Tensor {
    fn random(data: &mut Data, len: usize, weight_decay: f32) -> Self {
        let [param, grad, first] = [1.0, 0.1, 0.1].map(|scale| data.uniform(len, scale));
        let second = data.uniform(len, 0.1).iter().map(|x| x * x).collect();
        let copy = (len % 2 == 1).then(|| vec![POISON; len + MARGIN]);
        Self { param, grad, first, second, copy, weight_decay, bf16_grad: false }
    }

    /// Checks that the copy is the parameter rounded to bf16, and that nothing else was written.
    #[track_caller]
    fn check_copy(&self, shift: usize) {
        let Some(copy) = &self.copy else { return };
        let rounded = self.param.iter().copied().map(bf16::from_f32);
        let poison = |count| std::iter::repeat_n(POISON, count);
        let expected: Vec<_> = poison(shift).chain(rounded).chain(poison(MARGIN)).collect();
        assert_eq!(copy, &expected, "the copy of {} elements", self.param.len());
    }

    fn state(&self) -> Vec<f32> {
        [&self.param[..], &self.first, &self.second].concat()
    }
}

/// The tensors after one update at `step`; the buffers start `shift` elements before them.
fn updated(tensors: &[Tensor], step: u32, halt: Option<u32>, shift: usize) -> Vec<Tensor> {
    scaled(tensors, step, halt, shift, None)
}

/// As [`updated`], with a scale of the gradients.
fn scaled(
    tensors: &[Tensor],
    step: u32,
    halt: Option<u32>,
    shift: usize,
    grad_scale: Option<f32>,
) -> Vec<Tensor> {
    let device = Device::new();
    let place = |data: &[f32]| {
        let padded = [&vec![f32::NAN; shift], data].concat();
        device.upload(&padded).slice(shift..shift + data.len())
    };
    let place_bf16 = |data: &[f32]| {
        let padded = [&vec![f32::NAN; shift], data].concat();
        let padded: Vec<_> = padded.into_iter().map(bf16::from_f32).collect();
        device.upload(&padded).slice(shift..shift + data.len())
    };
    let mut listed: Vec<_> = tensors
        .iter()
        .map(|tensor| AdamWTensor {
            param: place(&tensor.param),
            grad: match tensor.bf16_grad {
                true => place_bf16(&tensor.grad).into(),
                false => place(&tensor.grad).into(),
            },
            exp_avg: place(&tensor.first),
            exp_avg_sq: place(&tensor.second),
            copy: None,
            weight_decay: tensor.weight_decay,
        })
        .collect();
    let copies: Vec<_> = tensors
        .iter()
        .map(|tensor| tensor.copy.as_ref().map(|copy| [&vec![POISON; shift], &copy[..]].concat()))
        .map(|padded| padded.map(|padded| device.upload(&padded)))
        .collect();
    for (tensor, copy) in listed.iter_mut().zip(&copies) {
        tensor.copy = copy.map(|copy| copy.slice(shift..shift + tensor.param.len()));
    }
    let (step, scalars) = (device.upload(&[step]), device.upload(&[f32::NAN; 3]));
    device.run(&schedule(step, scalars, RATE).launch().unwrap());
    let halt = halt.map(|halt| device.upload(&[halt]));
    let grad_scale = grad_scale.map(|scale| device.upload(&[scale]));
    let (beta1, beta2) = BETAS;
    let adamw = AdamW { tensors: &listed, scalars, halt, grad_scale, beta1, beta2, eps: EPS };
    device.run(&adamw.launch().unwrap());
    let read = |((tensor, views), copy): ((&Tensor, &AdamWTensor<u64>), &Option<_>)| Tensor {
        param: device.download(views.param),
        grad: match views.grad {
            TensorView::F32(grad) => device.download(grad),
            TensorView::Bf16(grad) => widened(&device.download(grad)),
            other => panic!("a gradient in {}", other.dtype()),
        },
        first: device.download(views.exp_avg),
        second: device.download(views.exp_avg_sq),
        copy: copy.map(|copy| device.download(copy)),
        ..*tensor
    };
    tensors.iter().zip(&listed).zip(&copies).map(read).collect()
}

fn expected(tensor: &Tensor, step: u32) -> Vec<f64> {
    let (beta1, beta2) = BETAS;
    let weight_decay = tensor.weight_decay.into();
    let constants = AdamWConstants { beta1, beta2, eps: EPS.into(), weight_decay };
    let [param, grad, first, second] =
        [&tensor.param, &tensor.grad, &tensor.first, &tensor.second].map(|data| doubles(data));
    let states = (0..param.len()).map(|i| {
        let state = AdamWState { param: param[i], exp_avg: first[i], exp_avg_sq: second[i] };
        state.updated(grad[i], &constants, RATE.at(step), step)
    });
    let states: Vec<_> = states.collect();
    let params = states.iter().map(|state| state.param);
    let firsts = states.iter().map(|state| state.exp_avg);
    params.chain(firsts).chain(states.iter().map(|state| state.exp_avg_sq)).collect()
}

fn list(data: &mut Data) -> Vec<Tensor> {
    // Tensors with an odd number of elements have a copy.
    let sizes = [(1, 0.1), (0, 0.1), (5, 0.0), (1030, 0.01), (1031, 0.01), (16_387, 0.1)];
    sizes.map(|(len, decay)| Tensor::random(data, len, decay)).into()
}

#[test]
fn an_update_matches_its_reference() {
    let mut data = Data::new("adamw");
    for step in [0, 7, 1_000_000] {
        let tensors = list(&mut data);
        let actual = updated(&tensors, step, Some(0), 0);
        for (actual, tensor) in actual.iter().zip(&tensors) {
            let expected = expected(tensor, step);
            let (params, moments) = expected.split_at(tensor.param.len());
            let what = format!("step {step}");
            // A parameter may be a small difference of two numbers near 1.
            Tolerance::relative(1e-6).absolute(1e-6).check(&actual.param, params, &what);
            // The terms of a moment are below 0.1 and may cancel.
            let tolerance = Tolerance::relative(1e-6).absolute(3e-8);
            tolerance.check(&actual.state()[params.len()..], moments, &what);
            same_bits(&actual.grad, &tensor.grad, "the gradient is only read");
            actual.check_copy(0);
        }
        for (halt, shift) in [(Some(0), 0), (None, 0), (Some(0), 1)] {
            let other = updated(&tensors, step, halt, shift);
            for (actual, other) in actual.iter().zip(&other) {
                same_bits(&actual.state(), &other.state(), "repeated, unguarded, unaligned");
                other.check_copy(shift);
            }
        }
    }
}

fn widened(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|value| value.to_f32()).collect()
}

#[test]
fn a_gradient_in_bf16_gives_the_bits_of_the_same_values_in_f32() {
    let mut data = Data::new("adamw bf16");
    let mut tensors = list(&mut data);
    tensors[4].grad[..5].copy_from_slice(&[f32::NAN, f32::INFINITY, -0.0, 1e-40, 3e38]);
    for tensor in &mut tensors {
        tensor.grad.iter_mut().for_each(|grad| *grad = bf16::from_f32(*grad).to_f32());
    }
    let in_bf16 = tensors.iter().cloned().map(|tensor| Tensor { bf16_grad: true, ..tensor });
    let in_bf16: Vec<_> = in_bf16.collect();
    for (shift, scale) in [(0, None), (1, Some(0.25)), (8, Some(0.0))] {
        let expected = scaled(&tensors, 7, None, shift, scale);
        let found = scaled(&in_bf16, 7, None, shift, scale);
        for ((found, expected), before) in found.iter().zip(&expected).zip(&tensors) {
            same_bits(&found.state(), &expected.state(), &format!("{shift} {scale:?}"));
            let bits = |tensor: &Tensor| {
                let copy = tensor.copy.clone()?;
                Some(copy.into_iter().map(bf16::to_bits).collect::<Vec<_>>())
            };
            assert!(bits(found) == bits(expected), "the copy of {} elements", before.param.len());
            same_bits(&found.grad, &before.grad, "the gradient is only read");
        }
    }
    // Tensors of both dtypes in one launch.
    let mixed: Vec<_> = [&tensors[..3], &in_bf16[3..]].concat();
    let (found, expected) = (scaled(&mixed, 7, None, 0, None), scaled(&tensors, 7, None, 0, None));
    for (found, expected) in found.iter().zip(&expected) {
        same_bits(&found.state(), &expected.state(), "mixed");
    }
}

#[test]
fn many_steps_match_the_reference() {
    let mut data = Data::new("adamw steps");
    let mut actual = vec![Tensor::random(&mut data, 37, 0.1)];
    let mut wide = expected_start(&mut actual[0]);
    for step in 0..25 {
        let grad = data.uniform(37, 1.0);
        actual[0].grad.clone_from(&grad);
        actual = updated(&actual, step, Some(0), 0);
        let (beta1, beta2) = BETAS;
        let weight_decay = actual[0].weight_decay.into();
        let constants = AdamWConstants { beta1, beta2, eps: EPS.into(), weight_decay };
        for (state, grad) in wide.iter_mut().zip(&grad) {
            *state = state.updated((*grad).into(), &constants, RATE.at(step), step);
        }
    }
    let params: Vec<_> = wide.iter().map(|state| state.param).collect();
    // Parameters are near 1; each step rounds them by up to 6e-8.
    Tolerance::relative(1e-5).absolute(1e-6).check(&actual[0].param, &params, "after 25 steps");
}

/// Moments of 0, as training starts.
fn expected_start(tensor: &mut Tensor) -> Vec<AdamWState> {
    tensor.first.fill(0.0);
    tensor.second.fill(0.0);
    let start = |&param: &f32| AdamWState { param: param.into(), exp_avg: 0.0, exp_avg_sq: 0.0 };
    tensor.param.iter().map(start).collect()
}

#[test]
fn nothing_changes_once_training_is_halted() {
    let mut data = Data::new("adamw halt");
    let mut tensors = list(&mut data);
    tensors[3].grad.fill(f32::NAN);
    for halt in [1, 17, u32::MAX] {
        let after = updated(&tensors, 3, Some(halt), 0);
        for (after, before) in after.iter().zip(&tensors) {
            same_bits(&after.state(), &before.state(), "halted");
            assert_eq!(after.copy, before.copy);
        }
    }
}

#[test]
fn grad_scale_has_the_bits_of_clipping() {
    let mut data = Data::new("adamw scale");
    let mut tensors = list(&mut data);
    for factor in [1.0, 0.37, f32::MIN_POSITIVE, 0.0] {
        if factor == 0.0 {
            tensors[4].grad[..3].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        }
        let device = Device::new();
        let clipped: Vec<_> = tensors
            .iter()
            .map(|tensor| {
                let (grad, scale) = (device.upload(&tensor.grad), device.upload(&[factor]));
                device.run(&ClipGrads { tensors: &[grad], scale }.launch().unwrap());
                Tensor { grad: device.download(grad), ..tensor.clone() }
            })
            .collect();
        let expected = updated(&clipped, 7, Some(0), 0);
        let found = scaled(&tensors, 7, Some(0), 0, Some(factor));
        for (found, expected) in found.iter().zip(&expected) {
            same_bits(&found.state(), &expected.state(), &format!("a factor of {factor:e}"));
            assert_eq!(found.copy, expected.copy);
        }
        for (found, tensor) in found.iter().zip(&tensors) {
            same_bits(&found.grad, &tensor.grad, "the gradient is only read");
        }
    }
}

#[test]
fn a_copy_rounds_ties_to_even() {
    // Without gradient, moments and decay, the parameter does not change.
    let bits = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0x8000_0001, 0x7fc0_0000];
    let param = bits.map(f32::from_bits).to_vec();
    let zeros = vec![0.0; param.len()];
    let [grad, first, second] = [(); 3].map(|()| zeros.clone());
    let copy = Some(vec![POISON; param.len()]);
    let tensor = Tensor { param, grad, first, second, copy, weight_decay: 0.0, bf16_grad: false };
    let after = &updated(&[tensor], 0, None, 0)[0];
    let copy = after.copy.as_ref().unwrap();
    let bits: Vec<u16> = copy.iter().map(|copy| copy.to_bits()).collect();
    assert_eq!(bits[..5], [0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x8000]);
    assert!(copy[5].is_nan());
}

#[test]
fn extreme_gradients_move_a_parameter_by_about_the_rate() {
    for scale in [1e-30_f32, 1e-15, 1e-3, 1.0, 1e15] {
        let tensor = Tensor {
            param: vec![1.0; 4],
            grad: vec![scale, -scale, 0.0, scale],
            first: vec![0.0; 4],
            second: vec![0.0; 4],
            copy: None,
            weight_decay: 0.0,
            bf16_grad: false,
        };
        let after = &updated(std::slice::from_ref(&tensor), 0, None, 0)[0];
        let wide = expected(&tensor, 0);
        // The square of 1e-30 is 0 in f32, but the step is far below eps · rate anyway. The
        // parameter is near 1: the error of its update is far below its own rounding.
        Tolerance::relative(1e-6).check(&after.param, &wide[..4], &format!("gradient {scale:e}"));
    }
}
