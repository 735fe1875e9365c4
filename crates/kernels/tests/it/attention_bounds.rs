//! Fused attention inside documents and sliding windows.

use std::collections::HashSet;

use retrograph_kernels::attention::{first_keys, query_ends};
use retrograph_kernels::ops::{AttentionBounds, DType, FusedAttention};
use retrograph_kernels::{KernelError, SmTarget, View};

use crate::fused_attention_case::{Case, FORMS, Results, is_supported, shape};
use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// batch, seq, heads, kv_heads, head_dim: one, primes, sizes around tiles of 32, 64 and 128,
/// groups, and a head_dim with `wgmma` entries.
const SHAPES: [[usize; 5]; 11] = [
    [1, 1, 1, 1, 16],
    [2, 37, 4, 2, 16],
    [1, 64, 1, 1, 40],
    [2, 97, 2, 1, 24],
    [1, 131, 4, 2, 72],
    [1, 1, 2, 1, 64],
    [2, 129, 3, 1, 64],
    [1, 257, 2, 2, 128],
    [1, 131, 4, 2, 96],
    [1, 270, 2, 1, 64],
    [1, 131, 2, 1, 256],
];

const BOTH: [DType; 2] = [DType::F32, DType::Bf16];

/// The position of each token in its document. Documents cycle through `lengths`.
fn positions(seq: usize, lengths: &[usize]) -> Vec<u32> {
    let documents = lengths.iter().cycle().flat_map(|length| 0..*length as u32);
    documents.take(seq).collect()
}

/// Documents and windows: names, and the first key of each query of a sequence.
fn patterns(seq: usize) -> Vec<(&'static str, Vec<u32>)> {
    let whole = positions(seq, &[seq]);
    let documents = positions(seq, &[3, 1, 61, 1, 1, 70, 130, 17]);
    let windows = [1, 7, 64, 100, seq as u32 + 5];
    let windowed = windows.map(|window| ("a window", first_keys(&whole, Some(window))));
    let mut patterns = vec![
        ("a window in documents", first_keys(&documents, Some(20))),
        ("one document", first_keys(&whole, None)),
        ("documents of a token", first_keys(&positions(seq, &[1]), None)),
        ("documents of a tile", first_keys(&positions(seq, &[64]), None)),
        ("documents", first_keys(&documents, None)),
    ];
    patterns.extend(windowed);
    patterns
}

/// A case with `keys` as the first keys of each sequence.
fn with_first_keys(case: Case, keys: &[u32]) -> Case {
    Case { first_keys: Some(keys.repeat(case.shape.batch)), ..case }
}

fn results_match(compute: DType, device: impl Fn() -> Device, shapes: &[[usize; 5]]) {
    let mut data = Data::new("attention bounds");
    let shapes = shapes.iter().filter(|sizes| is_supported(compute, shape(**sizes)));
    for (number, sizes) in shapes.enumerate() {
        let mut patterns = patterns(sizes[1]);
        // A window of one token equals documents of one token, and a window of all tokens equals no
        // window.
        let mut seen = HashSet::new();
        patterns.retain(|(_, keys)| seen.insert(keys.clone()));
        for (index, (name, keys)) in patterns.into_iter().enumerate() {
            // Shapes alternate between the even and the odd patterns.
            if index > 0 && (index + number) % 2 == 1 {
                continue;
            }
            let case = with_first_keys(Case::new(&mut data, compute, *sizes), &keys);
            let results = case.run_on(&device(), 1);
            if name == "a window in documents" {
                same_bits(&results.all(), &case.run_on(&device(), 1).all(), name);
            }
            let group = sizes[2] / sizes[3];
            if group > 1 {
                case.check_all(&[&results, &case.run_on(&device(), group)], name);
            } else {
                case.check(&results, name);
            }
        }
    }
}

#[test]
fn results_in_f32_match_their_references_and_repeat_their_bits() {
    results_match(DType::F32, Device::new, &SHAPES);
}

#[test]
fn results_of_split_operands_match_their_references_and_repeat_their_bits() {
    results_match(DType::F16, Device::new, &SHAPES);
}

#[test]
fn results_in_bf16_match_their_references_and_repeat_their_bits() {
    results_match(DType::Bf16, Device::new, &SHAPES);
}

#[test]
fn targets_without_wgmma_match_the_references() {
    for target in [75, 80] {
        let device = || Device::with_images_for(SmTarget::portable(target));
        for compute in BOTH {
            results_match(compute, device, &[[2, 37, 4, 2, 16], [1, 131, 2, 1, 64]]);
            results_match(compute, device, &[[1, 97, 2, 2, 128]]);
        }
    }
}

#[test]
fn bounds_of_the_whole_sequence_have_the_bits_of_no_bounds() {
    let mut data = Data::new("bounds of everything");
    for (compute, sizes) in FORMS.into_iter().flat_map(|c| SHAPES.map(|sizes| (c, sizes))) {
        if !is_supported(compute, shape(sizes)) {
            continue;
        }
        let case = Case::new(&mut data, compute, sizes);
        let without = case.run(1).all();
        let case = with_first_keys(case, &vec![0; sizes[1]]);
        same_bits(&without, &case.run(1).all(), &format!("{compute:?} {sizes:?}"));
    }
}

/// The results of the tokens `range` of a case with one sequence: outputs, log-sum-exps, gradients.
fn of_tokens(case: &Case, results: &Results, range: std::ops::Range<usize>) -> Vec<f32> {
    let rows = |tensor: &[f32]| {
        let width = tensor.len() / case.shape.seq;
        tensor[range.start * width..range.end * width].to_vec()
    };
    let lse = results.lse.chunks(case.shape.seq).flat_map(|head| head[range.clone()].to_vec());
    let tensors = [&results.out, &results.q, &results.k, &results.v].map(|it| rows(it));
    lse.chain(tensors.concat()).collect()
}

#[test]
fn changing_a_document_changes_no_bit_of_another() {
    let mut data = Data::new("neighbours");
    // Inside one tile, at its edges, and across several.
    let cases = [(100, 40..57, 24), (150, 64..128, 64), (300, 50..170, 128), (290, 128..129, 64)];
    let forms = cases.iter().flat_map(|case| FORMS.map(|compute| (compute, case.clone())));
    for (compute, (seq, changed, head_dim)) in forms {
        if !is_supported(compute, shape([1, seq, 4, 2, head_dim])) {
            continue;
        }
        let lengths = [changed.start, changed.len(), seq - changed.end];
        let keys = first_keys(&positions(seq, &lengths), None);
        let case = Case::new(&mut data, compute, [1, seq, 4, 2, head_dim]);
        let mut case = with_first_keys(case, &keys);
        let before = case.run(1);
        for factor in [-3.0, 1e4] {
            for tensor in [&mut case.q, &mut case.k, &mut case.v, &mut case.grad_out] {
                let width = tensor.len() / seq;
                let own = &mut tensor[changed.start * width..changed.end * width];
                own.iter_mut().for_each(|value| *value = *value * factor + 0.5);
            }
            let after = case.run(1);
            for others in [0..changed.start, changed.end..seq] {
                let of_others = |results| of_tokens(&case, results, others.clone());
                let what = format!("{compute:?}: tokens {others:?} of {seq}");
                same_bits(&of_others(&before), &of_others(&after), &what);
            }
        }
    }
}

#[test]
fn tiles_of_other_documents_are_not_read() {
    let mut data = Data::new("tiles of others");
    for (compute, head_dim) in FORMS.into_iter().flat_map(|c| [32, 64, 128, 256].map(|h| (c, h))) {
        if !is_supported(compute, shape([1, 512, 2, 1, head_dim])) {
            continue;
        }
        // Documents of whole tiles of every entry.
        let (seq, documents) = (512, [128, 256, 128]);
        let keys = first_keys(&positions(seq, &documents), None);
        let case = Case::new(&mut data, compute, [1, seq, 2, 1, head_dim]);
        let mut case = with_first_keys(case, &keys);
        let before = case.run(1);
        for tensor in [&mut case.q, &mut case.k, &mut case.v, &mut case.grad_out] {
            let width = tensor.len() / seq;
            tensor[128 * width..384 * width].fill(f32::NAN);
        }
        let after = case.run(1);
        for others in [0..128, 384..seq] {
            let of_others = |results| of_tokens(&case, results, others.clone());
            same_bits(&of_others(&before), &of_others(&after), "beside NaN");
        }
    }
}

#[test]
fn bounds_out_of_range_end_and_stay_in_their_tensors() {
    let mut data = Data::new("bounds out of range");
    for (compute, head_dim) in FORMS.into_iter().flat_map(|c| [16, 64, 128, 256].map(|h| (c, h))) {
        if !is_supported(compute, shape([1, 200, 2, 1, head_dim])) {
            continue;
        }
        let seq = 200;
        let descending: Vec<u32> = (0..seq).rev().collect();
        for keys in [vec![u32::MAX; 200], vec![seq; 200], descending] {
            let case = Case::new(&mut data, compute, [1, seq as usize, 2, 1, head_dim]);
            let case = with_first_keys(case, &keys);
            // Results are undefined. The simulator reports accesses out of bounds.
            case.run(1);
        }
    }
}

#[test]
fn both_arrays_describe_the_same_pairs() {
    for seq in [1, 2, 31, 200] {
        for (name, keys) in patterns(seq) {
            let ends = query_ends(&keys);
            assert!(keys.is_sorted() && ends.is_sorted(), "{name}");
            for (query, key) in (0..seq).flat_map(|i| (0..seq).map(move |j| (i, j))) {
                let by_query = (keys[query] as usize..=query).contains(&key);
                let by_key = (key..ends[key] as usize).contains(&query);
                assert_eq!(by_query, by_key, "{name}: query {query} and key {key} of {seq}");
            }
        }
    }
    assert_eq!(first_keys(&[0, 1, 2, 0, 1], None), [0, 0, 0, 3, 3]);
    assert_eq!(first_keys(&[0, 1, 2, 3, 0], Some(2)), [0, 0, 1, 2, 4]);
    assert_eq!(query_ends(&[0, 0, 1, 2, 4]), [2, 3, 4, 4, 5]);
    assert_eq!(query_ends(&[]), []);
}

#[test]
fn bounds_of_other_lengths_are_refused_by_name() {
    let floats = |len| View::<u64, f32>::new(4096, len);
    let bounds = |first, ends| AttentionBounds {
        first_keys: View::<u64, u32>::new(4096, first),
        query_ends: View::new(8192, ends),
    };
    let launch = |bounds| {
        let [q, k, v] = [32, 16, 16].map(|len| floats(len).into());
        let (shape, bounds) = (shape([1, 2, 2, 1, 8]), Some(bounds));
        FusedAttention {
            q,
            k,
            v,
            out: floats(32),
            lse: floats(4),
            split_f16: None,
            bounds,
            shape,
            scale: 1.0,
            softcap: None,
        }
        .launch()
    };
    assert!(launch(bounds(2, 2)).is_ok());
    for (wrong, name) in [(bounds(3, 2), "first_keys"), (bounds(2, 1), "query_ends")] {
        let error = launch(wrong).unwrap_err();
        assert!(matches!(error, KernelError::Length { operand, .. } if operand == name), "{error}");
    }
}
