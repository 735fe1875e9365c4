//! GEMMs whose contraction is split among the blocks of a cluster.

use half::bf16;
use retrograph_kernels::Launch;
use retrograph_kernels::gemm::dispatch_entry;
use retrograph_kernels::ops::{DType, FpropSplitK};

use crate::gemm_case::{
    Case, Format, Op, Tile, cluster_split_k_tiles, geometry, multistage_tiles, shape,
};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

const OPS: [Op; 2] = [Op::Fprop, Op::Dgrad];

/// Rows, length of the contraction, columns: one block with stages, fewer stages than blocks, as
/// many, uneven shares, and last stages that are not full.
const SIZES: [[usize; 3]; 8] = [
    [1, 8, 8],
    [1, 64, 16],
    [7, 136, 24],
    [67, 200, 136],
    [64, 256, 64],
    [13, 584, 72],
    [131, 1096, 136],
    [257, 72, 264],
];

fn case<'a>(op: Op, [rows, k, columns]: [usize; 3], [a, b]: &'a [Vec<f32>; 2]) -> Case<'a> {
    let sizes = if op == Op::Fprop { [rows, k, columns] } else { [rows, columns, k] };
    let case = Case::new(op, shape(sizes), a, b);
    Case { compute: DType::Bf16, left: Format::Bf16, format: Format::Bf16, ..case }
}

fn operands(data: &mut Data, [rows, k, columns]: [usize; 3]) -> [Vec<f32>; 2] {
    [data.uniform(rows * k, 2.0), data.uniform(k * columns, 2.0)]
}

/// The ranges of K that the blocks of a cluster multiply: whole stages, the first blocks one more.
fn shares(k: usize, blocks: usize) -> Vec<std::ops::Range<usize>> {
    let stages = k.div_ceil(64);
    let count = |rank| stages / blocks + usize::from(rank < stages % blocks);
    let mut first = 0;
    let share = |rank| {
        let start = first;
        first += count(rank) * 64;
        start.min(k)..first.min(k)
    };
    (0..blocks).map(share).collect()
}

/// The operands of a range of K.
fn range_of(
    op: Op,
    [rows, k, columns]: [usize; 3],
    [a, b]: &[Vec<f32>; 2],
    range: std::ops::Range<usize>,
) -> [Vec<f32>; 2] {
    let columns_of = |x: &[f32], rows: usize| -> Vec<f32> {
        (0..rows).flat_map(|row| x[row * k..][range.clone()].to_vec()).collect()
    };
    let b = match op {
        Op::Fprop => columns_of(b, columns),
        _ => b[range.start * columns..range.end * columns].to_vec(),
    };
    [columns_of(a, rows), b]
}

#[test]
fn every_tile_matches_the_reference_and_repeats_its_bits() {
    let (mut data, device) = (Data::new("cluster split-K"), Device::new());
    for (op, sizes) in OPS.into_iter().flat_map(|op| SIZES.map(|sizes| (op, sizes))) {
        let operands = operands(&mut data, sizes);
        let case = case(op, sizes, &operands);
        for &tile in cluster_split_k_tiles(device.target()) {
            let found = case.run_tile(&device, tile);
            case.check_within(4.0, &found, &format!("{tile:?}"));
            same_bits(&found, &case.run_tile(&device, tile), &format!("{tile:?} again"));
            let (launch, c) = case.launch(&device);
            device.run_as(&launch, whole_grid(&launch, &device, tile));
            same_bits(&found, &device.download(c), &format!("{tile:?} with its own grid"));
        }
    }
}

/// The geometry that the library uses for a tile.
fn whole_grid(launch: &Launch<u64>, device: &Device, tile: Tile) -> retrograph_kernels::Dispatch {
    let entry = geometry(launch, device.target(), tile).entry;
    dispatch_entry(launch, entry, device.target()).expect("the entry is one of the image")
}

/// Each block adds its share in one chain, and the first block adds the shares in ascending order.
#[test]
fn shares_are_added_in_ascending_order() {
    let (mut data, device) = (Data::new("shares of a cluster"), Device::new());
    for (op, sizes) in OPS.into_iter().flat_map(|op| SIZES.map(|sizes| (op, sizes))) {
        let [rows, k, columns] = sizes;
        let operands = operands(&mut data, sizes);
        let case_of = case(op, sizes, &operands);
        for &tile in cluster_split_k_tiles(device.target()) {
            let mut expected = vec![0.0; rows * columns];
            for share in shares(k, tile.cluster().k as usize) {
                if share.is_empty() {
                    continue;
                }
                let length = share.len();
                let operands = range_of(op, sizes, &operands, share);
                let share = case(op, [rows, length, columns], &operands);
                let share = share.run_tile(&device, multistage_tiles(device.target())[7]);
                expected.iter_mut().zip(share).for_each(|(sum, share)| *sum += share);
            }
            let what = format!("{op:?} {sizes:?} {tile:?}");
            same_bits(&expected, &case_of.run_tile(&device, tile), &what);
        }
    }
}

#[test]
fn a_result_in_bf16_is_the_one_in_f32_rounded() {
    let (mut data, device) = (Data::new("cluster split-K results"), Device::new());
    // The last result has rows that are not whole vectors.
    for (op, sizes) in [(Op::Fprop, [72, 328, 136]), (Op::Dgrad, [72, 328, 136])]
        .into_iter()
        .chain([(Op::Fprop, [40, 264, 37])])
    {
        let operands = operands(&mut data, sizes);
        let bias = data.uniform(sizes[2], 2.0);
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        let case = Case { alpha: 0.75, bias, ..case(op, sizes, &operands) };
        let len = sizes[0] * sizes[2];
        for &tile in cluster_split_k_tiles(device.target()) {
            let exact = case.run_tile(&device, tile);
            let whole = device.upload(&vec![bf16::MAX; len + 8]);
            let launch = case.launch_rounded(&device, whole.slice(0..len)).unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            let expected = exact.iter().map(|&value| bf16::from_f32(value));
            let expected: Vec<_> = expected.chain([bf16::MAX; 8]).collect();
            assert_eq!(device.download(whole), expected, "{op:?} {sizes:?} {tile:?}");
        }
    }
}

#[test]
fn bias_alpha_and_accumulation_match_the_reference() {
    let (mut data, device) = (Data::new("cluster split-K epilogue"), Device::new());
    for op in OPS {
        let sizes = [24, 328, 72];
        let operands = operands(&mut data, sizes);
        let (before, bias) = (data.uniform(24 * 72, 2.0), data.uniform(72, 2.0));
        let bias = (op == Op::Fprop).then_some(bias.as_slice());
        for before in [None, Some(before.as_slice())] {
            let case = Case { bias, before, alpha: -0.75, ..case(op, sizes, &operands) };
            for &tile in cluster_split_k_tiles(device.target()) {
                case.check_within(4.0, &case.run_tile(&device, tile), &format!("{tile:?}"));
            }
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("cluster split-K specials"), Device::new());
    let specials = [f32::NAN, f32::from_bits(0x7fff_ffff), f32::INFINITY, f32::NEG_INFINITY];
    for (op, value) in OPS.iter().flat_map(|op| specials.map(|value| (*op, value))) {
        let sizes = [16, 328, 24];
        let mut operands = operands(&mut data, sizes);
        let (last_a, middle_b) = (operands[0].len() - 1, operands[1].len() / 2);
        (operands[0][last_a], operands[1][middle_b]) = (value, value);
        let case = case(op, sizes, &operands);
        for &tile in cluster_split_k_tiles(device.target()) {
            case.check_within(4.0, &case.run_tile(&device, tile), "with a special value");
        }
    }
}

/// Planes of split-K, or of a batch, have clusters of their own.
#[test]
fn each_plane_is_split() {
    let (mut data, device) = (Data::new("cluster split-K planes"), Device::new());
    let (sizes, splits) = ([72, 656, 72], 2);
    let operands = operands(&mut data, sizes);
    let [rows, k, columns] = sizes;
    let [x, w] = operands.each_ref().map(|values| Format::Bf16.upload(&device, values, 0));
    let shape = shape([rows, k, columns]);
    for &tile in cluster_split_k_tiles(device.target()) {
        let partials = device.unwritten(splits * rows * columns);
        let launch = FpropSplitK { x, w, partials, shape, splits }.launch_in(DType::Bf16).unwrap();
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        let found = device.download(partials);
        let range = |plane| plane * k / splits..(plane + 1) * k / splits;
        for (plane, found) in found.chunks(rows * columns).enumerate() {
            let operands = range_of(Op::Fprop, sizes, &operands, range(plane));
            let expected = case(Op::Fprop, [rows, k / splits, columns], &operands);
            same_bits(&expected.run_tile(&device, tile), found, &format!("{plane} {tile:?}"));
        }
    }
}
