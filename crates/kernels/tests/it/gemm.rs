//! GEMMs of linear layers against their references, in every tile and for every operand alignment.

use std::collections::BTreeSet;

use retrograph_kernels::gemm::reference as gemm;

use crate::bounds::within;
use crate::gemm_case::{Case, OPS, Op, TILES, geometry, shape, tile_of};
use crate::harness::Device;
use crate::support::numbers::{Data, differences, doubles, same_bits};

/// Zero, one, primes, multiples of 4 and of tiles and one past them, short and long contractions.
const SHAPES: [[usize; 3]; 12] = [
    [0, 3, 5],
    [3, 0, 5],
    [3, 5, 0],
    [1, 1, 1],
    [2, 3, 5],
    [4, 8, 4],
    [31, 37, 29],
    [32, 16, 64],
    [33, 65, 36],
    [5, 300, 9],
    [129, 7, 65],
    [12, 132, 136],
];

#[test]
fn every_tile_matches_the_reference_and_tiles_without_sliced_k_agree_bit_for_bit() {
    let (mut data, device) = (Data::new("gemm tiles"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| SHAPES.map(|sizes| (*op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(op, shape, &a, &b);
        let results = TILES.map(|tile| {
            let result = case.run_tile(&device, tile);
            case.check(&result, &format!("{tile:?}"));
            result
        });
        same_bits(&results[0], &results[1], "the tiles 128x128 and 64x64");
        same_bits(&results[0], &results[2], "the tiles 128x128 and 32x32");
    }
}

#[test]
fn bias_alpha_accumulation_and_alignment_match_the_reference() {
    let (mut data, device) = (Data::new("gemm epilogue"), Device::new());
    for (op, sizes) in OPS.iter().flat_map(|op| [[5, 12, 8], [9, 7, 33]].map(|s| (*op, s))) {
        let shape = shape(sizes);
        let ([a, b, c], _) = op.lens(shape);
        let (a, b, before) = (data.uniform(a, 2.0), data.uniform(b, 2.0), data.uniform(c, 2.0));
        let bias = data.uniform(shape.outputs, 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let plain = Case::new(op, shape, &a, &b);
            let case = Case { bias, before, alpha: -0.75, ..plain };
            let aligned = case.run(&device);
            case.check(&aligned, "with everything");
            let shifted = Case { shift: 1, ..case };
            same_bits(&aligned, &shifted.run(&device), "aligned and unaligned operands");
            for tile in TILES {
                shifted.check(&shifted.run_tile(&device, tile), &format!("{tile:?}"));
            }
        }
    }
}

#[test]
fn the_chosen_tile_matches_the_reference_and_repeats_its_bits() {
    let (mut data, device) = (Data::new("gemm dispatch"), Device::new());
    // Short and long contractions, few columns and many, and sizes that no tile divides.
    let shapes = [
        [40, 20, 70],
        [530, 24, 1160],
        [330, 40, 1000],
        [33, 380, 1540],
        [7, 300, 399],
        [7, 300, 24],
    ];
    let chosen = shapes.map(|sizes| {
        let shape = shape(sizes);
        let ([a, b, _], _) = Op::Fprop.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(Op::Fprop, shape, &a, &b);
        let first = case.run(&device);
        // The slack of tf32x3 tiles.
        case.check_within(4.0, &first, "chosen by sizes");
        same_bits(&first, &case.run(&device), "two runs");
        let (launch, _) = case.launch(&device);
        let dispatch = launch.dispatch(device.target());
        let tile = tile_of(&launch, dispatch.entry);
        assert_eq!(dispatch, geometry(&launch, device.target(), tile));
        dispatch.entry
    });
    let different: BTreeSet<_> = chosen.iter().collect();
    assert!(different.len() >= 3, "{chosen:?}");
}

#[test]
fn every_tile_repeats_its_bits_over_many_tiles_and_stages() {
    let (mut data, device) = (Data::new("gemm repeats"), Device::new());
    for op in OPS {
        let shape = shape([150, 277, 139]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(op, shape, &a, &b);
        for tile in TILES {
            let first = case.run_tile(&device, tile);
            case.check(&first, &format!("{tile:?}"));
            same_bits(&first, &case.run_tile(&device, tile), &format!("{tile:?}"));
        }
    }
}

#[test]
fn extreme_scales_stay_within_their_bound() {
    let (mut data, device) = (Data::new("gemm scales"), Device::new());
    for (op, (left, right)) in OPS.iter().flat_map(|op| {
        [(1e-30, 1.0), (1e30, 1.0), (1e-30, 1e30), (1e-30, 1e-12), (1e18, 1e18)].map(|s| (*op, s))
    }) {
        let shape = shape([17, 70, 23]);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, left), data.uniform(b, right));
        let case = Case::new(op, shape, &a, &b);
        for tile in TILES {
            case.check(&case.run_tile(&device, tile), "extreme scales");
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("gemm specials"), Device::new());
    for (op, value) in OPS
        .iter()
        .flat_map(|op| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|value| (*op, value)))
    {
        for sizes in [[6, 37, 9], [8, 36, 12]] {
            let shape = shape(sizes);
            let ([a, b, _], _) = op.lens(shape);
            let (mut a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            let last = a.len() - 1;
            for place in [0, last / 2, last] {
                a[place] = value;
                let case = Case::new(op, shape, &a, &b);
                for tile in TILES {
                    case.check(&case.run_tile(&device, tile), "with a special value");
                }
                a[place] = 1.0;
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences_of_the_forward_product() {
    let (mut data, device) = (Data::new("gemm differences"), Device::new());
    let shape = shape([3, 5, 7]);
    let (x, w) = (data.uniform(15, 2.0), data.uniform(35, 2.0));
    let grad = data.uniform(21, 2.0);
    let dot = |y: Vec<f64>| y.iter().zip(doubles(&grad)).map(|(y, g)| y * g).sum();
    let by_x = differences(&doubles(&x), 1e-3, |x| dot(gemm::fprop(x, &doubles(&w), shape)));
    let by_w = differences(&doubles(&w), 1e-3, |w| dot(gemm::fprop(&doubles(&x), w, shape)));
    let dgrad = Case::new(Op::Dgrad, shape, &grad, &w).run(&device);
    let wgrad = Case::new(Op::Wgrad, shape, &grad, &x).run(&device);
    // The product is linear, so finite differences are exact up to rounding.
    within(&dgrad, &by_x, &[1e-5; 15], "dgrad and differences");
    within(&wgrad, &by_w, &[1e-5; 35], "wgrad and differences");
}
