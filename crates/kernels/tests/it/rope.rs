//! Rotary position embedding against its reference, its inverse and finite differences.

use half::bf16;
use retrograph_kernels::ops::{Output, Rope, RopeTensor, TokenPositions, rope_tables};
use retrograph_kernels::rope::reference::rope;
use retrograph_kernels::{KernelError, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::numbers::{Data, differences, doubles, same_bits};

/// batch, seq, heads, head_dim: halves that are multiples of four, and others.
const SHAPES: [[usize; 4]; 7] = [
    [0, 3, 2, 4],
    [1, 1, 1, 2],
    [2, 3, 5, 6],
    [1, 37, 2, 16],
    [3, 7, 1, 10],
    [2, 2, 2, 128],
    [1, 5, 3, 24],
];

fn run(x: &[f32], [batch, seq, heads, head_dim]: [usize; 4], inverse: bool) -> Vec<f32> {
    let tables = rope_tables(seq, head_dim, 1e4);
    let once = || {
        let device = Device::new();
        let (cos, sin) = (device.upload(&tables.0), device.upload(&tables.1));
        let (x, out) = (device.upload(x), device.unwritten(x.len()));
        let (token_positions, positions) = (TokenPositions::FromZero, seq);
        let tensors = &[RopeTensor { x, out: out.into(), heads }];
        let launch =
            Rope { tensors, cos, sin, token_positions, positions, batch, seq, head_dim, inverse };
        device.run(&launch.launch().unwrap());
        device.download(out)
    };
    let result = once();
    same_bits(&result, &once(), "two runs");
    result
}

/// The reference with the tables of the kernel.
fn expected(x: &[f64], [_, seq, heads, head_dim]: [usize; 4], inverse: bool) -> Vec<f64> {
    let (cos, sin) = rope_tables(seq, head_dim, 1e4);
    rope(x, &doubles(&cos), &doubles(&sin), [seq, heads, head_dim], inverse)
}

#[test]
fn both_ways_match_the_reference() {
    let mut data = Data::new("rope");
    for (shape, inverse) in SHAPES.iter().flat_map(|shape| [false, true].map(|i| (*shape, i))) {
        for scale in [1.0, 1e-30, 1e30] {
            let x = data.uniform(shape.iter().product(), scale);
            let bounds = vec![chain(3, 2.0 * f64::from(scale)); x.len()];
            let expected = expected(&doubles(&x), shape, inverse);
            within(&run(&x, shape, inverse), &expected, &bounds, &format!("rope {shape:?}"));
        }
    }
}

#[test]
fn the_inverse_undoes_the_rotation_and_is_its_gradient() {
    let mut data = Data::new("rope inverse");
    let shape = [2, 5, 3, 6];
    let (x, grad) = (data.uniform(180, 2.0), data.uniform(180, 2.0));
    let back = run(&run(&x, shape, false), shape, true);
    within(&back, &doubles(&x), &[1e-6; 180], "there and back");
    let loss = |x: &[f64]| {
        let y = expected(x, shape, false);
        y.iter().zip(&grad).map(|(y, g)| y * f64::from(*g)).sum()
    };
    let differences = differences(&doubles(&x), 1e-3, loss);
    within(&run(&grad, shape, true), &differences, &[1e-5; 180], "differences");
}

#[test]
fn two_tensors_at_once_have_the_bits_of_each_alone() {
    let mut data = Data::new("rope of two");
    for [batch, seq, heads, head_dim] in SHAPES {
        let (device, shapes) = (Device::new(), [heads, heads + 2]);
        let shapes = shapes.map(|heads| [batch, seq, heads, head_dim]);
        let inputs = shapes.map(|shape| data.uniform(shape.iter().product(), 2.0));
        let alone = [0, 1].map(|at| run(&inputs[at], shapes[at], true));
        let tables = rope_tables(seq, head_dim, 1e4);
        let (cos, sin) = (device.upload(&tables.0), device.upload(&tables.1));
        for shift in [0, 1] {
            let padded = |values: &[f32]| {
                let whole = device.upload(&[&vec![f32::NAN; shift], values].concat());
                whole.slice(shift..shift + values.len())
            };
            let plain = alone.each_ref().map(|it| padded(&vec![f32::NAN; it.len()]));
            let rounded = alone.each_ref().map(|it| device.upload(&vec![bf16::MAX; it.len()]));
            let outs = [Output::Both(plain[0], rounded[0]), Output::Bf16(rounded[1])];
            let tensors = [0, 1].map(|at| {
                let (x, out, heads) = (padded(&inputs[at]), outs[at], shapes[at][2]);
                RopeTensor { x, out, heads }
            });
            let (positions, inverse, tensors) = (seq, true, &tensors);
            let token_positions = TokenPositions::FromZero;
            let rope = Rope {
                tensors,
                cos,
                sin,
                token_positions,
                positions,
                batch,
                seq,
                head_dim,
                inverse,
            };
            device.run(&rope.launch().unwrap());
            let what = format!("{:?} from {shift}", shapes[0]);
            same_bits(&device.download(plain[0]), &alone[0], &what);
            for (rounded, alone) in rounded.into_iter().zip(&alone) {
                let expected: Vec<_> = alone.iter().map(|&x| bf16::from_f32(x)).collect();
                assert_eq!(device.download(rounded), expected, "{what}");
            }
        }
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let view = |len| View::<&str, f32>::new("view", len);
    let turn = RopeTensor { x: view(24), out: view(24).into(), heads: 2 };
    let launch = |tensors: &[RopeTensor<&'static str>]| {
        let (cos, sin, token_positions) = (view(6), view(6), TokenPositions::FromZero);
        let (positions, batch, seq, head_dim, inverse) = (3, 1, 3, 4, false);
        Rope { tensors, cos, sin, token_positions, positions, batch, seq, head_dim, inverse }
            .launch()
    };
    launch(&[turn, turn]).unwrap();
    for tensors in [&[][..], &[turn; 3]] {
        assert!(matches!(launch(tensors), Err(KernelError::Shape { .. })));
    }
    for (wrong, operand) in [
        (RopeTensor { x: view(23), ..turn }, "x"),
        (RopeTensor { out: view(25).into(), ..turn }, "out"),
        (RopeTensor { heads: 3, ..turn }, "x"),
    ] {
        let error = launch(&[turn, wrong]).unwrap_err();
        assert!(matches!(error, KernelError::Length { operand: o, .. } if o == operand), "{error}");
    }
}

#[test]
fn special_values_reach_their_pair_only() {
    for value in [f32::NAN, f32::INFINITY] {
        let shape = [1, 4, 2, 6];
        let mut x = vec![1.0; 48];
        x[20] = value;
        let expected = expected(&doubles(&x), shape, false);
        within(&run(&x, shape, false), &expected, &[1e-6; 48], "special values");
    }
}

#[test]
fn tables_hold_cosines_and_sines_of_the_angles() {
    let (cos, sin) = rope_tables(3, 4, 100.0);
    let angles = [0.0, 0.0, 1.0, 0.1, 2.0, 0.2_f64];
    assert_eq!(cos, angles.map(|angle| angle.cos() as f32));
    assert_eq!(sin, angles.map(|angle| angle.sin() as f32));
}

#[test]
fn tokens_may_have_individual_positions() {
    let mut data = Data::new("rope positions");
    let ([batch, seq, heads, head_dim], rows) = ([2, 5, 3, 6], 9);
    let token_positions = [0, 1, 2, 0, 1, 8, 7, 7, 0, 4_000_000_000_u32];
    let x = data.uniform(batch * seq * heads * head_dim, 2.0);
    let (cos, sin) = rope_tables(rows, head_dim, 1e4);
    for inverse in [false, true] {
        let device = Device::new();
        let (input, out) = (device.upload(&x), device.unwritten(x.len()));
        let launch = Rope {
            tensors: &[RopeTensor { x: input, out: out.into(), heads }],
            cos: device.upload(&cos),
            sin: device.upload(&sin),
            token_positions: TokenPositions::Each(device.upload(&token_positions)),
            positions: rows,
            batch,
            seq,
            head_dim,
            inverse,
        };
        device.run(&launch.launch().unwrap());
        let (found, width, half) = (device.download(out), heads * head_dim, head_dim / 2);
        for (token, position) in token_positions.into_iter().enumerate() {
            // Positions past the end of the tables use the last row.
            let row = (position as usize).min(rows - 1) * half..;
            let [cos, sin] = [&cos, &sin].map(|table| doubles(&table[row.clone()][..half]));
            let own = token * width..(token + 1) * width;
            let x = doubles(&x[own.clone()]);
            let expected = rope(&x, &cos, &sin, [1, heads, head_dim], inverse);
            within(&found[own], &expected, &vec![chain(3, 4.0); width], "a token");
        }
    }
    let view = |len| View::<&str, f32>::new("view", len);
    let positions = View::<&str, u32>::new("positions", 4);
    let wrong = Rope {
        tensors: &[RopeTensor { x: view(30), out: view(30).into(), heads: 1 }],
        cos: view(27),
        sin: view(27),
        token_positions: TokenPositions::Each(positions),
        positions: 9,
        batch: 1,
        seq: 5,
        head_dim: 6,
        inverse: false,
    };
    let error = wrong.launch().unwrap_err();
    let named = matches!(error, KernelError::Length { operand: "token_positions", .. });
    assert!(named, "{error}");
}

#[test]
fn tokens_at_position_zero_stay_as_they_are() {
    let mut data = Data::new("rope at zero");
    let [batch, seq, heads, head_dim] = [2, 5, 3, 10];
    let x = data.uniform(batch * seq * heads * head_dim, 2.0);
    let (cos, sin) = rope_tables(1, head_dim, 1e4);
    for inverse in [false, true] {
        let device = Device::new();
        let (input, out) = (device.upload(&x), device.unwritten(x.len()));
        let launch = Rope {
            tensors: &[RopeTensor { x: input, out: out.into(), heads }],
            cos: device.upload(&cos),
            sin: device.upload(&sin),
            token_positions: TokenPositions::Zero,
            positions: 1,
            batch,
            seq,
            head_dim,
            inverse,
        };
        device.run(&launch.launch().unwrap());
        same_bits(&device.download(out), &x, "unrotated heads");
    }
}
