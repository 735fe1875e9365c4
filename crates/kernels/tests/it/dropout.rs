//! Dropout against its reference, and its statistics.

use retrograph_kernels::KernelError;
use retrograph_kernels::elementwise::reference::dropout::keeps;
use retrograph_kernels::ops::Dropout;

use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// Zero, one, vec4s with every remainder, primes, and both sides of a block.
const LENGTHS: [usize; 10] = [0, 1, 2, 3, 4, 5, 127, 1023, 1025, 2053];
const SEED: u64 = 0x0123_4567_89ab_cdef;

/// The parameters of a draw.
#[derive(Clone, Copy)]
struct Drawn {
    step: u32,
    sequence: u32,
    first_group: u32,
    seed: u64,
    probability: f32,
}

const DRAWN: Drawn = Drawn { step: 3, sequence: 7, first_group: 0, seed: SEED, probability: 0.3 };

/// Runs over `x` into poisoned memory, or adds to `before`; `shift` misaligns both.
fn run(x: &[f32], before: Option<&[f32]>, drawn: Drawn, shift: usize) -> Vec<f32> {
    let device = Device::new();
    let padded = |values: &[f32]| [vec![5.0; shift], values.to_vec(), vec![5.0; 3]].concat();
    let input = device.upload(&padded(x)).slice(shift..shift + x.len());
    let start = before.map_or_else(|| vec![f32::NAN; x.len()], <[f32]>::to_vec);
    let whole = device.upload(&padded(&start));
    let Drawn { step, sequence, first_group, seed, probability } = drawn;
    let launch = Dropout {
        x: input,
        out: whole.slice(shift..shift + x.len()),
        step: device.upload(&[step]),
        probability,
        seed,
        sequence,
        first_group,
        accumulate: before.is_some(),
    };
    device.run(&launch.launch().unwrap());
    let all: Vec<f32> = device.download(whole);
    let around = [&all[..shift], &all[shift + x.len()..]].concat();
    assert!(around.iter().all(|&x| x == 5.0), "wrote beyond its elements");
    all[shift..shift + x.len()].to_vec()
}

fn expected(x: &[f32], before: Option<&[f32]>, drawn: Drawn) -> Vec<f32> {
    let Drawn { step, sequence, first_group, seed, probability } = drawn;
    let first = 4 * first_group as usize;
    let scale = (1.0 / (1.0 - f64::from(probability))) as f32;
    let element = |(index, &x): (usize, &f32)| {
        let kept =
            if keeps(first + index, [step, sequence], seed, probability) { x * scale } else { 0.0 };
        before.map_or(kept, |before| kept + before[index])
    };
    x.iter().enumerate().map(element).collect()
}

#[test]
fn the_same_elements_as_in_the_reference_are_dropped() {
    let mut data = Data::new("dropout");
    for probability in [0.0, 0.05, 0.5, 0.999] {
        for (len, first_group) in
            LENGTHS.into_iter().zip([0, 1, 1000, u32::MAX].into_iter().cycle())
        {
            let drawn = Drawn { probability, first_group, ..DRAWN };
            let (x, before) = (data.spread(len), data.uniform(len, 2.0));
            for before in [None, Some(before.as_slice())] {
                let exact = expected(&x, before, drawn);
                for shift in [0, 1, 0] {
                    same_bits(&run(&x, before, drawn, shift), &exact, "dropout");
                }
            }
        }
    }
}

#[test]
fn the_drop_rate_is_right_and_each_step_drops_other_elements() {
    let (n, ones) = (1 << 14, vec![1.0; 1 << 14]);
    let dropped = |drawn| run(&ones, None, drawn, 0).iter().map(|&x| x == 0.0).collect::<Vec<_>>();
    let first = dropped(DRAWN);
    let count = |dropped: &[bool]| dropped.iter().filter(|dropped| **dropped).count() as f64;
    // Six standard deviations of a binomial distribution.
    let (mean, deviation) = (0.3 * f64::from(n), (0.3 * 0.7 * f64::from(n)).sqrt());
    assert!((count(&first) - mean).abs() < 6.0 * deviation, "{} of {n}", count(&first));
    for other in [
        Drawn { step: 4, ..DRAWN },
        Drawn { sequence: 8, ..DRAWN },
        Drawn { first_group: 1 << 12, ..DRAWN },
        Drawn { seed: SEED + 1, ..DRAWN },
        Drawn { seed: SEED ^ 1 << 40, ..DRAWN },
    ] {
        let second = dropped(other);
        let both = first.iter().zip(&second).filter(|(a, b)| **a && **b).count() as f64;
        let (mean, deviation) = (0.09 * f64::from(n), (0.09 * 0.91 * f64::from(n)).sqrt());
        assert!((both - mean).abs() < 6.0 * deviation, "{both} of {n} are left out twice");
    }
}

#[test]
fn dropped_elements_are_zero_even_if_not_finite() {
    let x: Vec<f32> = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30].repeat(40);
    let found = run(&x, None, DRAWN, 0);
    for (found, expected) in found.iter().zip(expected(&x, None, DRAWN)) {
        let same = found == &expected || found.is_nan() && expected.is_nan();
        assert!(same, "{found} for {expected}");
    }
    assert!(found.iter().any(|x| x.is_nan()) && found.contains(&0.0));
}

#[test]
fn a_probability_is_below_one() {
    let device = Device::new();
    for probability in [1.0, -0.1, f32::NAN, f32::INFINITY] {
        let (x, step) = (device.upload(&[1.0_f32]), device.upload(&[0_u32]));
        let (seed, sequence, first_group) = (0, 0, 0);
        let dropout = Dropout {
            x,
            out: x,
            step,
            probability,
            seed,
            sequence,
            first_group,
            accumulate: false,
        };
        let error = dropout.launch().unwrap_err();
        assert!(matches!(error, KernelError::Constant { .. }), "{error}");
    }
}
