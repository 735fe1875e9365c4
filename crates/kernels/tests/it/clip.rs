//! Clipping by the global norm: squared sums, factor, guard and scaling.

use half::bf16;
use retrograph_kernels::View;
use retrograph_kernels::ops::{
    ClipFactor, ClipGrads, GradNormPartials, Guard, grad_norm_partials_len,
};
use retrograph_kernels::optimizer::reference::clip::{clip, clip_factor};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};

/// The outcome of clipping.
struct Clipped {
    tensors: Vec<Vec<f32>>,
    scale: f32,
    norm: f32,
    halt: u32,
}

/// The values that the guard checks.
#[derive(Clone, Copy)]
struct Seen {
    loss: f32,
    step: u32,
    halt: u32,
}

const FINE: Seen = Seen { loss: 1.0, step: 6, halt: 0 };

/// Clips `tensors`, the last of which starts four bytes into its buffer.
fn run(tensors: &[Vec<f32>], max_norm: f32, seen: Seen) -> Clipped {
    let device = Device::new();
    let views: Vec<View<u64, f32>> = tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| {
            let shift = usize::from(index + 1 == tensors.len());
            let padded = [&vec![f32::NAN; shift], tensor.as_slice()].concat();
            device.upload(&padded).slice(shift..shift + tensor.len())
        })
        .collect();
    let lens: Vec<_> = tensors.iter().map(Vec::len).collect();
    let partials = device.upload(&vec![f64::NAN; grad_norm_partials_len(&lens)]);
    let (scale, norm) = (device.upload(&[-1.0_f32]), device.upload(&[-1.0_f32]));
    let (loss, step) = (device.upload(&[seen.loss]), device.upload(&[seen.step]));
    let halt = device.upload(&[seen.halt]);
    let guard = Some(Guard { loss, step, halt });
    device.run(&GradNormPartials { tensors: &views, partials }.launch().unwrap());
    device.run(&ClipFactor { partials, max_norm, scale, norm, guard }.launch().unwrap());
    device.run(&ClipGrads { tensors: &views, scale }.launch().unwrap());
    Clipped {
        tensors: views.iter().map(|&view| device.download(view)).collect(),
        scale: device.download(scale)[0],
        norm: device.download(norm)[0],
        halt: device.download(halt)[0],
    }
}

fn lists(data: &mut Data, scale: f32) -> Vec<Vec<Vec<f32>>> {
    let lens: [&[usize]; 5] = [&[], &[0], &[1], &[3, 0, 16_384, 5], &[7, 16_385, 1031, 33_001]];
    lens.map(|lens| lens.iter().map(|&len| data.uniform(len, scale)).collect()).into()
}

#[test]
fn clipping_matches_its_reference_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("clip");
    for scale in [1e-30, 1e-3, 1.0, 1e30] {
        for tensors in lists(&mut data, scale) {
            let max_norm = 0.5;
            let actual = run(&tensors, max_norm, FINE);
            let wide: Vec<_> = tensors.iter().map(|tensor| doubles(tensor)).collect();
            let slices: Vec<_> = wide.iter().map(Vec::as_slice).collect();
            let expected = clip_factor(&slices, max_norm.into());
            let tolerance = Tolerance::relative(2e-7);
            tolerance.check(&[actual.norm], &[expected.norm], "norm");
            tolerance.check(&[actual.scale], &[expected.scale], "scale");
            assert_eq!(actual.halt, 0);
            for (actual, tensor) in actual.tensors.iter().zip(&wide) {
                tolerance.check(actual, &clip(tensor, expected.scale), "clipped");
            }
            let again = run(&tensors, max_norm, FINE);
            same_bits(&actual.tensors.concat(), &again.tensors.concat(), "two runs");
            same_bits(&[actual.norm], &[again.norm], "norms of two runs");
        }
    }
}

#[test]
fn the_norm_covers_all_tensors() {
    let clipped = run(&[vec![3.0], vec![4.0]], 1.0, FINE);
    assert_eq!((clipped.norm, clipped.scale), (5.0, 0.2));
    assert_eq!(clipped.tensors, [[3.0 * 0.2_f32], [4.0 * 0.2_f32]]);
}

#[test]
fn gradients_within_the_norm_keep_every_bit() {
    let mut data = Data::new("clip nothing");
    let tensors = vec![data.uniform(5, 1e-3), vec![-0.0, f32::from_bits(1)]];
    for max_norm in [1.0, f32::INFINITY] {
        let clipped = run(&tensors, max_norm, FINE);
        assert_eq!(clipped.scale, 1.0);
        same_bits(&clipped.tensors.concat(), &tensors.concat(), "unclipped");
    }
}

#[test]
fn a_norm_that_is_not_finite_zeroes_gradients_and_halts() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for max_norm in [1.0, f32::INFINITY] {
            let clipped = run(&[vec![1.0, 2.0], vec![3.0, bad, 4.0]], max_norm, FINE);
            assert!(!clipped.norm.is_finite());
            assert_eq!((clipped.scale, clipped.halt), (0.0, 7), "step 6 is reported as 7");
            same_bits(&clipped.tensors.concat(), &[0.0; 5], "nothing gets through");
        }
    }
    // Each element is finite, but the norm overflows f32.
    let clipped = run(&[vec![f32::MAX; 2]], 1.0, FINE);
    assert_eq!((clipped.norm, clipped.scale, clipped.halt), (f32::INFINITY, 0.0, 7));
}

#[test]
fn a_loss_that_is_not_finite_halts_too() {
    for loss in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let clipped = run(&[vec![0.1]], 1.0, Seen { loss, step: 0, halt: 0 });
        assert_eq!((clipped.scale, clipped.halt), (0.0, 1));
        assert_eq!(clipped.tensors, [[0.0]]);
    }
}

#[test]
fn the_first_failure_is_kept() {
    let later = Seen { loss: f32::NAN, step: 9, halt: 3 };
    assert_eq!(run(&[vec![0.1]], 1.0, later).halt, 3);
    let fine = Seen { halt: 3, ..FINE };
    assert_eq!(run(&[vec![0.1]], 1.0, fine).halt, 3);
}

#[test]
fn the_clip_factor_works_without_a_guard() {
    let device = Device::new();
    let partials = device.upload(&[9.0_f64, 16.0]);
    let (scale, norm) = (device.upload(&[0.0_f32]), device.upload(&[0.0_f32]));
    let clip_factor = ClipFactor { partials, max_norm: 2.5, scale, norm, guard: None };
    device.run(&clip_factor.launch().unwrap());
    assert_eq!((device.download(scale)[0], device.download(norm)[0]), (0.5, 5.0));
}

#[test]
fn squares_of_bf16_have_the_bits_of_the_same_values_in_f32() {
    let (mut data, device) = (Data::new("squares in bf16"), Device::new());
    for lens in [&[1][..], &[3, 0, 16_384, 5], &[16_385, 1031]] {
        let partials = || device.upload(&vec![f64::NAN; grad_norm_partials_len(lens)]);
        let [in_f32, in_bf16] = [partials(), partials()];
        let rounded: Vec<Vec<bf16>> = lens
            .iter()
            .map(|&len| data.uniform(len, 1e3).into_iter().map(bf16::from_f32).collect())
            .collect();
        let wide = |tensor: &Vec<bf16>| tensor.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        let views: Vec<_> = rounded.iter().map(|tensor| device.upload(&wide(tensor))).collect();
        device.run(&GradNormPartials { tensors: &views, partials: in_f32 }.launch().unwrap());
        // Starts 2 bytes after an aligned address, as a slice may.
        let shifted = |tensor: &Vec<bf16>| {
            let padded = [&[bf16::NAN], &tensor[..]].concat();
            device.upload(&padded).slice(1..padded.len())
        };
        let views: Vec<_> = rounded.iter().map(shifted).collect();
        device.run(&GradNormPartials { tensors: &views, partials: in_bf16 }.launch().unwrap());
        let bits = |view| device.download(view).into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(in_f32), bits(in_bf16), "{lens:?}");
    }
}
