//! Fused attention and its gradients against their references and finite differences.

use half::{bf16, f16};
use retrograph_kernels::attention::first_keys;
use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionShape, DType, FusedAttention,
    FusedAttentionGradKv, FusedAttentionGradQ, SplitMatrix,
};
use retrograph_kernels::{FoundSizes, KernelError, SmTarget, View};

use crate::bounds::within;
use crate::fused_attention_case::{Case, FORMS, is_supported, shape};
use crate::gemm_case::rounded;
use crate::harness::Device;
use crate::support::numbers::{Data, differences, same_bits};

/// batch, seq, heads, kv_heads, head_dim: one, primes, sizes around tiles, groups of 1 to 6,
/// padding.
const SHAPES: [[usize; 5]; 25] = [
    [0, 4, 2, 1, 8],
    [1, 0, 2, 1, 8],
    [1, 1, 1, 1, 4],
    [2, 5, 4, 2, 4],
    [1, 31, 3, 3, 12],
    [2, 33, 2, 1, 16],
    [1, 63, 2, 2, 64],
    [1, 64, 1, 1, 36],
    [1, 65, 6, 1, 128],
    [2, 97, 2, 1, 20],
    [1, 131, 4, 2, 72],
    [1, 128, 2, 1, 100],
    [1, 193, 1, 1, 8],
    [1, 1, 2, 1, 64],
    [2, 70, 4, 2, 64],
    [1, 128, 2, 1, 128],
    [2, 129, 3, 1, 64],
    [1, 257, 2, 2, 128],
    [2, 130, 3, 1, 96],
    [1, 257, 2, 2, 96],
    [1, 400, 2, 1, 64],
    [1, 1, 1, 1, 256],
    [2, 33, 3, 1, 136],
    [1, 70, 4, 2, 200],
    [1, 129, 2, 1, 256],
];

const BOTH: [DType; 2] = [DType::F32, DType::Bf16];

fn results_match(compute: DType) {
    let mut data = Data::new("fused attention");
    let shapes = SHAPES.into_iter().filter(|sizes| is_supported(compute, shape(*sizes)));
    for sizes in shapes {
        let case = Case::new(&mut data, compute, sizes);
        let group = case.shape.heads / case.shape.kv_heads;
        let results = case.run(1);
        same_bits(&results.all(), &case.run(1).all(), "two runs");
        let parts = (2..=group).filter(|parts| group.is_multiple_of(*parts));
        let in_parts: Vec<_> = parts.map(|parts| case.run(parts)).collect();
        let runs: Vec<_> = std::iter::once(&results).chain(&in_parts).collect();
        case.check_all(&runs, "in one part and in more");
    }
}

/// Of each head_dim with a `wgmma` entry; 4 to 12 tiles of queries, with windows and without.
#[test]
fn the_number_of_persistent_blocks_does_not_change_a_bit() {
    let mut data = Data::new("persistent attention");
    for sizes in [[2, 300, 2, 1, 64], [1, 280, 2, 2, 96], [1, 600, 1, 1, 128], [2, 150, 2, 1, 256]]
    {
        let mut case = Case::new(&mut data, DType::Bf16, sizes);
        let positions = Vec::from_iter(0..sizes[1] as u32);
        for window in [None, Some(40)] {
            let keys = window.map(|_| first_keys(&positions, window).repeat(sizes[0]));
            (case.first_keys, case.blocks) = (keys, u32::MAX);
            let expected = case.run(1);
            for blocks in [1, 2, 5] {
                case.blocks = blocks;
                same_bits(&expected.all(), &case.run(1).all(), "fewer blocks");
            }
        }
    }
}

#[test]
fn results_in_f32_match_their_references_and_repeat_their_bits() {
    results_match(DType::F32);
}

#[test]
fn results_of_split_operands_match_their_references_and_repeat_their_bits() {
    results_match(DType::F16);
}

#[test]
fn results_in_bf16_match_their_references_and_repeat_their_bits() {
    results_match(DType::Bf16);
}

/// One shape for each entry in bf16.
const CAPPED: [[usize; 5]; 8] = [
    [2, 33, 2, 1, 16],
    [1, 131, 4, 2, 72],
    [1, 70, 4, 2, 200],
    [2, 70, 4, 2, 64],
    [1, 130, 3, 1, 96],
    [1, 257, 2, 2, 128],
    [1, 129, 2, 1, 256],
    [1, 1, 1, 1, 256],
];

#[test]
fn capped_scores_match_their_references_and_repeat_their_bits() {
    let mut data = Data::new("fused attention cap");
    for sizes in CAPPED {
        let mut case = Case::new(&mut data, DType::Bf16, sizes);
        let scale = case.scale;
        let without = case.run(1).all();
        // Scores of a few units: curved, nearly linear and saturated.
        for (cap, factor) in [(0.5, 1.0), (50.0, 1.0), (5.0, 20.0)] {
            (case.softcap, case.scale) = (Some(cap), factor * scale);
            let results = case.run(1);
            same_bits(&results.all(), &case.run(1).all(), "two runs");
            assert!(sizes[1] == 1 || results.all() != without, "the cap has no effect");
            case.check(&results, "with a cap");
        }
        let positions = Vec::from_iter(0..sizes[1] as u32);
        case.first_keys = Some(first_keys(&positions, Some(33)).repeat(sizes[0]));
        case.check(&case.run(1), "with a cap and a window");
    }
}

/// The smallest cap makes all scores equal, the largest one changes none.
#[test]
fn extreme_caps_are_those_of_no_scores_and_of_no_cap() {
    let mut data = Data::new("fused attention extreme caps");
    for sizes in CAPPED {
        for cap in [f32::MIN_POSITIVE, f32::MAX] {
            let case = Case { softcap: Some(cap), ..Case::new(&mut data, DType::Bf16, sizes) };
            case.check(&case.run(1), "extreme");
        }
    }
}

#[test]
fn an_infinite_score_becomes_the_cap() {
    let mut data = Data::new("fused attention infinite scores");
    for sizes in CAPPED.into_iter().filter(|[_, seq, ..]| *seq > 1) {
        let mut case = Case { softcap: Some(2.0), ..Case::new(&mut data, DType::Bf16, sizes) };
        // The first element of a query in the middle, against keys of both signs.
        case.q[sizes[1] / 2 * sizes[2] * sizes[4]] = f32::INFINITY;
        let (found, expected) = (case.run(1), case.expected());
        within(&found.out, &expected.values.out, &expected.bounds.out, "out");
        within(&found.lse, &expected.values.lse, &expected.bounds.lse, "lse");
    }
}

#[test]
fn heads_of_64_96_128_and_256_use_wgmma_on_hopper() {
    for (head_dim, expected) in
        [(32, false), (64, true), (96, true), (104, false), (128, true), (200, false), (256, true)]
    {
        let tokens = 4;
        let len = tokens * 2 * head_dim;
        let (bf16, f32) = (View::<u64, bf16>::new(4096, len), View::<u64, f32>::new(1 << 20, len));
        let (shape, lse) = (shape([1, tokens, 2, 2, head_dim]), View::new(8192, 2 * tokens));
        let [q, k, v] = [bf16.into(); 3];
        let launch = FusedAttention {
            q,
            k,
            v,
            out: f32,
            lse,
            split_f16: None,
            bounds: None,
            shape,
            scale: 1.0,
            softcap: None,
        }
        .launch()
        .unwrap();
        let entry = |target| launch.dispatch(target).entry;
        let hopper = entry(SmTarget::for_device(9, 0).unwrap());
        assert_eq!(hopper.contains("wgmma"), expected, "{hopper}");
        assert!(!entry(SmTarget::portable(90)).contains("wgmma"));
    }
}

#[test]
fn split_operands_use_wgmma_on_hopper_and_f32_elsewhere() {
    let shape = shape([1, 4, 2, 2, 64]);
    let matrix = || SplitMatrix {
        terms: View::<u64, f16>::new(1 << 22, 2 * 512),
        term_count: 2,
        scales: View::new(1 << 23, 4),
    };
    let f32 = View::<u64, f32>::new(1 << 20, 512);
    let [q, k, v] = [f32.into(); 3];
    let lse = View::new(8192, 8);
    let attention = FusedAttention {
        q,
        k,
        v,
        out: f32,
        lse,
        split_f16: Some([(); 3].map(|()| matrix())),
        bounds: None,
        shape,
        scale: 1.0,
        softcap: None,
    };
    let entry =
        |attention: FusedAttention<u64>, target| attention.launch().unwrap().dispatch(target).entry;
    let hopper = SmTarget::for_device(9, 0).unwrap();
    assert_eq!(entry(attention, hopper), "flash_attention_f32_wgmma_hd64");
    assert_eq!(entry(attention, SmTarget::portable(80)), "flash_attention_f32_hd64");
    let without = FusedAttention { split_f16: None, ..attention };
    assert_eq!(entry(without, hopper), "flash_attention_f32_hd64");

    let refused = |parts| {
        let attention = FusedAttention { split_f16: Some(parts), ..attention };
        attention.launch().unwrap_err().to_string()
    };
    let one = SplitMatrix { terms: View::new(1 << 22, 512), term_count: 1, ..matrix() };
    assert!(refused([matrix(), one, matrix()]).contains("two terms"));
    let short = SplitMatrix { scales: View::new(1 << 23, 3), ..matrix() };
    assert!(refused([short, matrix(), matrix()]).contains("the scales of q"));
    let bf16 = View::<u64, bf16>::new(4096, 512).into();
    let mixed = FusedAttention { q: bf16, k: bf16, v: bf16, ..attention };
    assert!(mixed.launch().unwrap_err().to_string().contains("only f32 operands"));
}

#[test]
fn targets_without_tensor_cores_match_the_references() {
    let (mut data, device) =
        (Data::new("fused fma"), Device::with_images_for(SmTarget::portable(75)));
    let sizes = [
        [1, 1, 1, 1, 8],
        [2, 37, 4, 2, 24],
        [1, 65, 3, 1, 128],
        [1, 97, 2, 2, 56],
        [1, 65, 2, 1, 256],
    ];
    let cases = BOTH.into_iter().flat_map(|compute| sizes.map(|sizes| (compute, sizes)));
    for (compute, sizes) in cases.filter(|(compute, sizes)| is_supported(*compute, shape(*sizes))) {
        let mut case = Case::new(&mut data, compute, sizes);
        case.check(&case.run_on(&device, 1), "images for sm_75");
        if compute == DType::Bf16 {
            case.softcap = Some(2.0);
            case.check(&case.run_on(&device, 1), "images for sm_75, with a cap");
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let mut data = Data::new("fused differences");
    BOTH.into_iter().for_each(|compute| gradients_match(&mut data, compute, [2, 5, 4, 2, 8]));
    gradients_match(&mut data, DType::Bf16, [1, 3, 2, 1, 136]);
    gradients_match(&mut data, DType::F16, [1, 3, 2, 1, 64]);
    for sizes in [[2, 5, 4, 2, 8], [1, 3, 2, 1, 64], [1, 3, 2, 1, 256]] {
        let case = Case::new(&mut data, DType::Bf16, sizes);
        case_gradients_match(Case { softcap: Some(0.5), ..case });
    }
}

fn gradients_match(data: &mut Data, compute: DType, sizes: [usize; 5]) {
    case_gradients_match(Case::new(data, compute, sizes));
}

fn case_gradients_match(mut case: Case) {
    // Numbers that are exact in bf16, so that finite differences start from the kernels' operands.
    for tensor in [&mut case.q, &mut case.k, &mut case.v, &mut case.grad_out] {
        *tensor = rounded(tensor);
    }
    let ([q, k, v, grad_out], attention) = (case.operands(), case.attention());
    let loss = |operands: [&[f64]; 3]| -> f64 {
        let out = attention.forward(operands).out;
        out.iter().zip(&grad_out).map(|(out, grad)| out * grad).sum()
    };
    let (results, bounds) = (case.run(2), case.expected().bounds);
    let by_q = differences(&q, 1e-3, |q| loss([q, &k, &v]));
    within(&results.q, &by_q, &bounds.q, "grad_q");
    let by_k = differences(&k, 1e-3, |k| loss([&q, k, &v]));
    within(&results.k, &by_k, &bounds.k, "grad_k");
    let by_v = differences(&v, 1e-3, |v| loss([&q, &k, v]));
    within(&results.v, &by_v, &bounds.v, "grad_v");
}

#[test]
fn large_and_tiny_numbers_neither_overflow_nor_vanish() {
    let mut data = Data::new("fused scales");
    BOTH.into_iter().for_each(|compute| neither_overflow_nor_vanish(&mut data, compute, [16, 8]));
    neither_overflow_nor_vanish(&mut data, DType::F16, [64, 96]);
    neither_overflow_nor_vanish(&mut data, DType::Bf16, [256, 136]);
}

fn neither_overflow_nor_vanish(data: &mut Data, compute: DType, head_dims: [usize; 2]) {
    // Scores of ±1e4: nearly all weight is on one key, and exponentials would overflow.
    let mut case = Case::new(data, compute, [1, 70, 2, 1, head_dims[0]]);
    case.scale = 1e4 / 64.0;
    let results = case.run(1);
    assert!(results.all().iter().all(|x| x.is_finite()));
    let [q, k, v, _] = case.operands();
    let expected = case.attention().forward([&q, &k, &v]);
    // Scores of 1e4 have an error of 1e-3 in f32, and so do logarithms and exponents.
    within(&results.out, &expected.out, &vec![0.05; q.len()], "out");
    within(&results.lse, &expected.lse, &vec![0.02; results.lse.len()], "lse");
    for (of_values, of_grads) in [(1e-30, 1e30), (1e30, 1e-30), (1e-15, 1e-12)] {
        let mut case = Case::new(data, compute, [1, 40, 2, 1, head_dims[1]]);
        let plain = case.run(1);
        case.v.iter_mut().for_each(|v| *v *= of_values);
        case.grad_out.iter_mut().for_each(|grad| *grad *= of_grads);
        let results = case.run(1);
        // Each result is its previous value times these factors.
        for (found, plain, factor) in [
            (&results.out, &plain.out, of_values),
            (&results.v, &plain.v, of_grads),
            (&results.q, &plain.q, of_values * of_grads),
            (&results.k, &plain.k, of_values * of_grads),
        ] {
            let expected: Vec<_> =
                plain.iter().map(|x| f64::from(*x) * f64::from(factor)).collect();
            // Rounding may differ, because the factors are not powers of 2.
            let rounding = if compute == DType::Bf16 { 0.05 } else { 2e-5 };
            let bounds = vec![rounding * f64::from(factor); found.len()];
            within(found, &expected, &bounds, &format!("{of_values:e}, {of_grads:e}"));
        }
    }
}

#[test]
fn nan_and_infinity_reach_all_dependents_and_stay_in_their_sequence() {
    let mut data = Data::new("fused specials");
    // Blocks of 128 tokens with `wgmma`, of 64 without.
    for (seq, token, head_dim, run) in [(150, 100, 8, 64), (300, 200, 64, 128), (150, 70, 256, 128)]
    {
        stays_in_its_run(&mut data, [seq, token, head_dim, run]);
    }
}

fn stays_in_its_run(data: &mut Data, [seq, token, head_dim, run]: [usize; 4]) {
    let specials = [f32::NAN, f32::INFINITY].into_iter().flat_map(|x| [0, 1, 2, 3].map(|i| (x, i)));
    let supported = |compute: &DType| is_supported(*compute, shape([1, seq, 1, 1, head_dim]));
    let forms = FORMS.into_iter().filter(supported);
    for (compute, (special, which)) in
        forms.flat_map(|compute| specials.clone().map(move |special| (compute, special)))
    {
        let mut case = Case::new(data, compute, [1, seq, 1, 1, head_dim]);
        let tensor = [&mut case.q, &mut case.k, &mut case.v, &mut case.grad_out];
        tensor[which][token * head_dim + 3] = special;
        let results = case.run(1);
        let expected = case.expected().values;
        for (name, found, expected) in [
            ("out", &results.out, &expected.out),
            ("grad_q", &results.q, &expected.q),
            ("grad_k", &results.k, &expected.k),
            ("grad_v", &results.v, &expected.v),
        ] {
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let of = i / head_dim;
                let fits = if expected.is_finite() {
                    of / run == token / run || found.is_finite()
                } else {
                    !found.is_finite()
                };
                assert!(
                    fits,
                    "{compute:?}, {special} in {which}: {name} of token {of} is {found}, not \
                     {expected}"
                );
            }
        }
    }
}

#[test]
fn keys_of_weight_zero_are_ignored_and_rows_without_weight_are_nan() {
    // Products of 1 and −∞, and of 0 and −∞, which is NaN.
    let mut data = Data::new("fused hidden");
    let mut case = Case::new(&mut data, DType::Bf16, [1, 70, 1, 1, 8]);
    case.q.fill(1.0);
    (0..40).for_each(|token| case.k[token * 8] = f32::NEG_INFINITY);
    let results = case.run(1);
    let [q, k, v, _] = case.operands();
    let expected = case.attention().forward([&q, &k, &v]);
    let bounds = vec![0.02; results.out.len()];
    within(&results.out, &expected.out, &bounds, "out");
    assert!(
        results.out[..320].iter().all(|x| x.is_nan())
            && results.out[320..].iter().all(|x| x.is_finite())
    );
    // In f32, splitting infinity gives NaN.
    let results = Case { compute: DType::F32, ..case }.run(1);
    assert!(results.out.iter().all(|x| x.is_nan()));
}

#[test]
fn operands_that_do_not_fit_are_refused_by_name() {
    let view = |len| View::<u64, f32>::new(4096, len);
    let shape = shape([1, 2, 2, 1, 8]);
    let good = FusedAttention {
        q: view(32).into(),
        k: view(16).into(),
        v: view(16).into(),
        out: view(32),
        lse: view(4),
        split_f16: None,
        bounds: None,
        shape,
        scale: 0.5,
        softcap: None,
    };
    assert!(good.launch().is_ok());
    let message = |attention: FusedAttention<u64>| attention.launch().unwrap_err().to_string();
    let wide = AttentionShape { head_dim: 132, ..shape };
    let of = |shape, len, keys| FusedAttention {
        q: view(len).into(),
        k: view(keys).into(),
        v: view(keys).into(),
        out: view(len),
        shape,
        ..good
    };
    assert!(message(of(wide, 528, 264)).contains("at most 128"));
    let wider = |head_dim| AttentionShape { head_dim, ..shape };
    assert!(wider(256).can_be_fused(DType::Bf16) && !wider(264).can_be_fused(DType::Bf16));
    let odd = AttentionShape { head_dim: 6, ..shape };
    assert!(message(of(odd, 24, 12)).contains("multiple of 4"));
    for dtype in BOTH {
        assert!(!odd.can_be_fused(dtype) && !wide.can_be_fused(dtype) && shape.can_be_fused(dtype));
    }
    let ragged = AttentionShape { head_dim: 12, ..shape };
    assert!(ragged.can_be_fused(DType::F32) && !ragged.can_be_fused(DType::Bf16));
    let mixed = FusedAttention { k: View::<u64, bf16>::new(4096, 16).into(), ..good };
    assert!(matches!(mixed.launch(), Err(KernelError::UnsupportedDType { .. })));
    assert!(message(FusedAttention { lse: view(3), ..good }).contains("lse"));
    assert!(message(FusedAttention { out: view(31), ..good }).contains("out"));
    assert!(
        message(FusedAttention { q: view(34).slice(2..34).into(), ..good }).contains("16 bytes")
    );
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(message(FusedAttention { scale, ..good }).contains("scale"));
    }
    let capped = FusedAttention { softcap: Some(2.0), ..good };
    assert!(message(capped).contains("capped scores need operands in bf16"));
    let inputs = AttentionBackwardInputs {
        q: good.q,
        k: good.k,
        v: good.v,
        grad_out: view(32).into(),
        lse_delta: view(512),
        split_f16: None,
        bounds: None,
        shape,
        scale: 0.5,
        softcap: None,
    };
    let grads = |splits, len| {
        FusedAttentionGradKv { inputs, grads: view(len).into(), splits, rope: None }.launch()
    };
    assert!(grads(2, 64).is_ok());
    let refused = grads(3, 96);
    assert!(matches!(refused, Err(KernelError::Shape { found: FoundSizes::Two(3, 2), .. })));
    assert!(matches!(grads(2, 32), Err(KernelError::Length { operand: "grads", .. })));
}

#[test]
fn sizes_whose_product_overflows_are_refused() {
    let view = View::<u64, f32>::new(4096, 0);
    let tensor = view.into();
    for sizes in [[usize::MAX / 2, 0, 4, 2, 8], [0, usize::MAX, 4, 2, 8], [1 << 31, 0, 0, 1, 8]] {
        let shape = shape(sizes);
        let forward = FusedAttention {
            q: tensor,
            k: tensor,
            v: tensor,
            out: view,
            lse: view,
            split_f16: None,
            bounds: None,
            shape,
            scale: 0.5,
            softcap: None,
        };
        let inputs = AttentionBackwardInputs {
            q: tensor,
            k: tensor,
            v: tensor,
            grad_out: tensor,
            lse_delta: view,
            split_f16: None,
            bounds: None,
            shape,
            scale: 0.5,
            softcap: None,
        };
        let preprocess = AttentionBackwardPreprocess {
            out: tensor,
            grad_out: tensor,
            lse: view,
            lse_delta: view,
            shape,
        };
        let (output, rope) = (view.into(), None);
        let launches = [
            forward.launch(),
            preprocess.launch(),
            FusedAttentionGradQ { inputs, grad_q: output, rope }.launch(),
            FusedAttentionGradKv { inputs, grads: output, splits: 2, rope }.launch(),
        ];
        let splits = shape.grad_kv_splits();
        assert!(splits <= 2, "{sizes:?}: {splits}");
        if sizes[2] == 0 {
            continue;
        }
        for launch in launches {
            let error = launch.unwrap_err();
            let overflow = matches!(error, KernelError::Overflow { .. });
            assert!(overflow || matches!(error, KernelError::TooLarge { .. }), "{error}");
            assert_eq!(overflow, sizes[0] > 0, "{error}");
        }
    }
}

#[test]
#[should_panic(expected = "must not overflow")]
fn a_log_sum_exp_that_overflows_panics() {
    let _ = shape([usize::MAX / 4, 1, 8, 1, 8]).lse_delta_len();
}

#[test]
fn a_group_has_the_fewest_splits_that_fill_a_device() {
    let splits = |sizes| shape(sizes).grad_kv_splits();
    let batches = [1, 4, 16, 17, 1000].map(|batch| splits([batch, 512, 12, 2, 128]));
    assert!(batches.is_sorted_by(|fewer, more| fewer >= more), "{batches:?}");
    assert_eq!((batches[0], batches[4]), (6, 1));
    assert!(batches.iter().all(|splits| 6 % splits == 0), "divisors of a group: {batches:?}");
    assert_eq!(splits([1, 64, 3, 3, 128]), 1);
    assert_eq!(splits([0, 0, 6, 1, 128]), 6);
}
