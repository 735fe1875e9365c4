//! Rows in another order, and products and losses of only the first rows.

use half::bf16;
use retrograph_kernels::ops::{
    CrossEntropy, DType, Dgrad, DgradOperands, DgradSplitK, DgradSum, Fprop, GemmShape, GradLogits,
    IGNORED_TARGET, Output, ReorderRows, Split, TensorView,
};
use retrograph_kernels::{Element, KernelError, Launch, View};

use crate::cross_entropy::losses_only;
use crate::gemm_case::{
    Op, Tile, cluster_split_k_tiles, geometry, multistage_tiles, tiles_of, to_bf16,
};
use crate::harness::{Device, UNWRITTEN};
use crate::split_products;
use crate::support::numbers::{Data, same_bits};

/// Rows in an order without a pattern.
fn shuffled(rows: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    order.sort_by_key(|row| row.wrapping_mul(0x9e37_79b9).rotate_left(11));
    order
}

/// Limits up to, at and past the number of rows.
fn limits(rows: usize) -> Vec<u32> {
    let rows = rows as u32;
    let mut limits = vec![0, 1, rows / 2, rows.saturating_sub(1), rows, rows + 7];
    limits.dedup();
    limits
}

/// Gathers and scatters the rows of `x`, `shift` elements after an aligned address.
fn copy<T: Element>(x: &[T], poison: T, rows: usize, shift: usize) {
    let (device, width, order) = (Device::new(), x.len() / rows.max(1), shuffled(rows));
    let upload = |elements: &[T]| {
        let padded = [&vec![poison; shift], elements].concat();
        device.upload(&padded).slice(shift..padded.len())
    };
    let zero = T::zeroed();
    for limit in limits(rows) {
        let row_of = |row: usize| row * width..(row + 1) * width;
        let (mut gathered, mut scattered) = (vec![zero; x.len()], vec![zero; x.len()]);
        for (at, &row) in order.iter().enumerate().take(limit as usize) {
            gathered[row_of(at)].copy_from_slice(&x[row_of(row as usize)]);
            scattered[row_of(row as usize)].copy_from_slice(&x[row_of(at)]);
        }
        // Rows that are not copied are not read either.
        let mut first = x.to_vec();
        first.iter_mut().skip(limit as usize * width).for_each(|element| *element = poison);
        let [outs @ .., untouched] = [(); 3].map(|()| upload(&vec![poison; x.len()]));
        let (places, row_limit) = (device.upload(&order), device.upload(&[limit]));
        let gather = ReorderRows { x: upload(x), order: places, row_limit, out: outs[0], width };
        let scatter = ReorderRows { x: upload(&first), out: outs[1], ..gather };
        for launch in [gather.gather(), scatter.scatter()] {
            device.run(&launch.unwrap());
        }
        let what = format!("{rows} × {width}, shift {shift}, limit {limit}");
        let same = |found: View<u64, T>, expected: &[T], direction: &str| {
            let found = device.download(found);
            let [found, expected] = [&found, expected].map(bytemuck::cast_slice::<T, u8>);
            assert_eq!(found, expected, "{direction} {what}");
        };
        same(outs[0], &gathered, "gather");
        same(outs[1], &scattered, "scatter");
        let order = device.upload(&vec![rows as u32; rows]);
        let outside = ReorderRows { order, out: untouched, ..gather };
        device.run(&outside.scatter().unwrap());
        device.run(&outside.gather().unwrap());
        same(untouched, &vec![poison; gathered.len()], "no rows of");
    }
}

/// Bits are copied, so every value counts as a number here.
#[test]
fn rows_are_gathered_and_scattered_bit_for_bit() {
    let mut data = Data::new("row order");
    for (rows, width) in [(0, 3), (1, 1), (3, 7), (5, 4), (7, 8), (33, 1000), (4, 5003)] {
        let mut words: Vec<u32> =
            data.uniform(rows * width, 2.0).into_iter().map(f32::to_bits).collect();
        let specials = [f32::NAN.to_bits(), 0x7fff_ffff, f32::INFINITY.to_bits(), 1 << 31, 1];
        words.iter_mut().step_by(7).zip(specials.into_iter().cycle()).for_each(|(x, y)| *x = y);
        let rounded: Vec<_> =
            words.iter().map(|word| bf16::from_bits((word >> 13) as u16)).collect();
        for shift in [0, 1, 4] {
            copy(&words, UNWRITTEN, rows, shift);
            copy(&rounded, bf16::from_bits(0x7fd0), rows, shift);
        }
    }
}

#[test]
fn wrong_operands_are_refused() {
    let view = |len| View::<u64, f32>::new(0, len);
    let (order, row_limit) = (View::<u64, u32>::new(0, 3), View::<u64, u32>::new(0, 1));
    let rows = ReorderRows { x: view(12), order, row_limit, out: view(12), width: 4 };
    assert!(rows.gather().is_ok());
    let refused = |launch: Result<Launch<u64>, KernelError>, operand: &str| {
        let error = launch.unwrap_err().to_string();
        assert!(error.contains(operand), "{error}");
    };
    refused(ReorderRows { x: view(11), ..rows }.gather(), "x");
    refused(ReorderRows { out: view(13), ..rows }.gather(), "out");
    refused(ReorderRows { row_limit: order, ..rows }.gather(), "row_limit");
    let bytes = View::<u64, u8>::new(0, 12);
    let rows_of_bytes = ReorderRows { x: bytes, order, row_limit, out: bytes, width: 4 };
    refused(rows_of_bytes.gather(), "two bytes");
    refused(rows.gather().unwrap().row_limit(order), "row_limit");
}

/// The results of a launch with a limit in a tile: rows below it have the bits of `whole`, and
/// tiles from it on are unwritten.
fn check_limit(
    device: &Device,
    [launch, limited]: [Launch<u64>; 2],
    [whole, c]: [View<u64, f32>; 2],
    [rows, planes]: [usize; 2],
    tile: Tile,
    limit: u32,
) {
    let dispatch = geometry(&launch, device.target(), tile);
    device.run_as(&launch, dispatch);
    device.run_as(&limited, dispatch);
    let (whole, found) = (device.download(whole), device.download(c));
    let plane = whole.len() / planes;
    let columns = plane / rows;
    let covered = tile.shape[0] * tile.cluster().m;
    let end = limit.div_ceil(covered).saturating_mul(covered) as usize;
    for (whole, found) in whole.chunks(plane).zip(found.chunks(plane)) {
        let valid = (limit as usize).min(rows) * columns;
        assert!(whole.iter().all(|value| value.is_finite()));
        same_bits(&whole[..valid], &found[..valid], &format!("limit {limit} in {tile:?}"));
        let skipped = found.get(end * columns..).unwrap_or_default();
        let is_unwritten = |value: &f32| value.to_bits() == UNWRITTEN;
        assert!(skipped.iter().all(is_unwritten), "tiles from {limit} on in {tile:?}");
    }
}

/// Shapes with one tile of rows and with several, also more than a band; and limits at, before and
/// after the edges of tiles.
const CASES: [(GemmShape, &[u32]); 3] = [
    (GemmShape { rows: 1, inputs: 8, outputs: 16 }, &[0, 1, 2]),
    (GemmShape { rows: 521, inputs: 72, outputs: 144 }, &[0, 1, 64, 128, 129, 520]),
    (GemmShape { rows: 1160, inputs: 8, outputs: 16 }, &[1023, 1025, u32::MAX]),
];

#[test]
fn products_in_bf16_skip_tiles_from_the_limit_on() {
    let (mut data, device) = (Data::new("row limit"), Device::new());
    for (shape, limits) in CASES {
        let GemmShape { rows, inputs, outputs } = shape;
        let mut upload = |len| device.upload(&to_bf16(&data.uniform(len, 2.0)));
        let (x, w, dy) = (upload(rows * inputs), upload(outputs * inputs), upload(rows * outputs));
        let bias = Some(device.upload(&data.uniform(outputs, 2.0)));
        for &limit in limits {
            let row_limit = device.upload(&[limit]);
            let split_k = cluster_split_k_tiles(device.target());
            for &tile in multistage_tiles(device.target()).iter().chain(split_k) {
                let check = |launch: &dyn Fn(View<u64, f32>) -> Launch<u64>, len, planes| {
                    let results = [(); 2].map(|()| device.unwritten(len));
                    let [whole, limited] = results.map(launch);
                    let limited = limited.row_limit(row_limit).unwrap();
                    check_limit(&device, [whole, limited], results, [rows, planes], tile, limit);
                };
                let (alpha, accumulate) = (0.5, false);
                let fprop = |y| Fprop { x, w, bias, y, shape, alpha, accumulate };
                check(&|y| fprop(y).launch_in(DType::Bf16).unwrap(), rows * outputs, 1);
                let dgrad =
                    |grad_input| Dgrad { grad_out: dy, w, grad_input, shape, alpha, accumulate };
                check(&|dx| dgrad(dx).launch_in(DType::Bf16).unwrap(), rows * inputs, 1);
                let product = DgradOperands { grad_out: dy, w, outputs };
                let added = [product];
                let products = (product, added.as_slice());
                let sum = |grad_input| DgradSum { products, grad_input, rows, inputs };
                check(&|dx| sum(dx).launch().unwrap(), rows * inputs, 1);
                let splits = 2;
                let split = |partials| DgradSplitK { grad_out: dy, w, partials, shape, splits };
                let len = splits * rows * inputs;
                check(&|dx| split(dx).launch_in(DType::Bf16).unwrap(), len, splits);
            }
        }
    }
}

#[test]
fn products_of_split_operands_skip_tiles_from_the_limit_on() {
    let (mut data, device) = (Data::new("row limit split"), Device::new());
    let tiles = tiles_of(device.target(), retrograph_kernel_abi::gemm::SPLIT_F16);
    for (shape, limits) in CASES {
        let GemmShape { rows, inputs, outputs } = shape;
        let mut split = |rows, columns, column_scales| {
            let x = device.upload(&data.uniform(rows * columns, 2.0));
            let out = split_products::unwritten(&device, rows, columns);
            device.run(&Split { x, column_scales, out, rows, columns }.launch().unwrap());
            out
        };
        let (x, w) = (split(rows, inputs, None), split(outputs, inputs, None));
        let dy = split(rows, outputs, Some(w.scales));
        for (&limit, &tile) in limits.iter().flat_map(|limit| tiles.iter().map(move |t| (limit, t)))
        {
            let row_limit = device.upload(&[limit]);
            for op in [Op::Fprop, Op::Dgrad] {
                let len = rows * if op == Op::Fprop { outputs } else { inputs };
                let results = [(); 2].map(|()| device.unwritten(len));
                let (bias, alpha, accumulate) = (None, 1.0, false);
                let [whole, limited] = results.map(|c| match op {
                    Op::Fprop => Fprop { x, w, bias, y: c, shape, alpha, accumulate }.launch(),
                    _ => {
                        Dgrad { grad_out: dy, w, grad_input: c, shape, alpha, accumulate }.launch()
                    }
                });
                let limited = limited.unwrap().row_limit(row_limit).unwrap();
                let launches = [whole.unwrap(), limited];
                check_limit(&device, launches, results, [rows, 1], tile, limit);
            }
        }
    }
}

/// Rows past the limit of an operand may have any content.
#[test]
fn rows_below_the_limit_do_not_depend_on_others() {
    let (mut data, device) = (Data::new("row limit NaN"), Device::new());
    let shape = GemmShape { rows: 300, inputs: 72, outputs: 136 };
    let GemmShape { rows, inputs, outputs } = shape;
    let x = data.uniform(rows * inputs, 2.0);
    let w = device.upload(&to_bf16(&data.uniform(outputs * inputs, 2.0)));
    let mut poisoned = x.clone();
    poisoned[131 * inputs..].fill(f32::NAN);
    let split_k = cluster_split_k_tiles(device.target());
    for &tile in multistage_tiles(device.target()).iter().chain(split_k) {
        let [whole, found] = [x.as_slice(), &poisoned].map(|x| {
            let (x, y) = (device.upload(&to_bf16(x)), device.unwritten(rows * outputs));
            let fprop = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
            let launch = fprop.launch_in(DType::Bf16).unwrap();
            let launch = launch.row_limit(device.upload(&[131])).unwrap();
            device.run_as(&launch, geometry(&launch, device.target(), tile));
            device.download(y)
        });
        let valid = ..131 * outputs;
        same_bits(&whole[valid], &found[valid], &format!("{tile:?}"));
        assert!(whole[valid].iter().all(|value| value.is_finite()));
    }
}

/// Losses and gradients of rows in an order have the bits of those in the order of tokens.
#[test]
fn cross_entropy_reads_only_ordered_rows_with_a_target() {
    let mut data = Data::new("cross_entropy order");
    for (rows, vocab) in [(0, 5), (1, 1), (7, 33), (6, 1025), (5, 5003)] {
        let logits = data.uniform(rows * vocab, 3.0);
        let mut tokens = data.tokens(rows, vocab);
        tokens.iter_mut().step_by(3).for_each(|token| *token = IGNORED_TARGET);
        let has_target = |row: &u32| tokens[*row as usize] != IGNORED_TARGET;
        let mut order = shuffled(rows);
        order.sort_by_key(|row| !has_target(row));
        let count = order.iter().filter(|row| has_target(row)).count();
        for is_bf16 in [false, true] {
            let device = Device::new();
            let upload = |logits: &[f32]| -> TensorView<u64> {
                let logits = device.upload(logits);
                if is_bf16 {
                    device.upload(&to_bf16(&device.download(logits))).into()
                } else {
                    logits.into()
                }
            };
            let run = |logits: &[f32], order: Option<&[u32]>, limit: Option<usize>, in_place| {
                let logits = upload(logits);
                let to = device.unwritten(rows * vocab);
                let grad_logits = match in_place {
                    true => GradLogits::InPlace,
                    false => GradLogits::Separate(Output::F32(to)),
                };
                let order = order.map(|order| device.upload(order));
                let loss = losses_only(&device, logits, &tokens, 3, vocab);
                let loss = CrossEntropy { order, grad_logits, ..loss };
                let mut launch = loss.launch().unwrap();
                if let Some(limit) = limit {
                    launch = launch.row_limit(device.upload(&[limit as u32])).unwrap();
                }
                device.run(&launch);
                let gradient = match (in_place, logits) {
                    (true, TensorView::F32(logits)) => device.download(logits),
                    (true, TensorView::Bf16(logits)) => {
                        device.download(logits).into_iter().map(bf16::to_f32).collect()
                    }
                    _ => device.download(to),
                };
                (device.download(loss.losses), gradient)
            };
            let mut ordered = vec![f32::NAN; rows * vocab];
            for (at, &row) in order.iter().enumerate().take(count) {
                let row = row as usize * vocab;
                ordered[at * vocab..][..vocab].copy_from_slice(&logits[row..row + vocab]);
            }
            for in_place in [false, true] {
                let (losses, gradient) = run(&logits, None, None, in_place);
                for limit in [None, Some(count)] {
                    let (found, found_gradient) = run(&ordered, Some(&order), limit, in_place);
                    same_bits(&losses, &found, "losses");
                    for (at, &row) in order.iter().enumerate() {
                        let found = &found_gradient[at * vocab..][..vocab];
                        let row = row as usize * vocab;
                        match limit.is_some_and(|limit| at >= limit) {
                            // Neither read nor written.
                            true => assert!(found.iter().all(|value| value.is_nan())),
                            false => same_bits(&gradient[row..][..vocab], found, "gradient"),
                        }
                    }
                }
                // No row of the logits has a place.
                let (found, gradient) = run(&logits, Some(&vec![rows as u32; rows]), None, false);
                let unwritten = |value: &f32| value.to_bits() == UNWRITTEN;
                assert!(found.iter().chain(&gradient).all(unwritten));
            }
        }
    }
}
