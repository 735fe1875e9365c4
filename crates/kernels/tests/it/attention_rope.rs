//! Gradients of fused attention that are rotated back by RoPE.

use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionRope, DType, FusedAttentionGradKv, FusedAttentionGradQ,
};
use retrograph_kernels::rope::reference::rope;
use retrograph_kernels::{KernelError, SmTarget, View};

use crate::fused_attention_case::{Case, RopeCase, shape};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};

/// batch, seq, heads, kv_heads, head_dim: one, primes, sizes around tiles, all entries.
const SHAPES: [[usize; 5]; 10] = [
    [1, 1, 1, 1, 8],
    [2, 37, 4, 2, 40],
    [1, 65, 2, 1, 72],
    [2, 70, 4, 2, 64],
    [1, 130, 6, 1, 96],
    [2, 129, 2, 2, 128],
    [1, 131, 2, 1, 128],
    [2, 70, 4, 2, 256],
    [1, 65, 2, 1, 144],
    [0, 4, 2, 1, 8],
];

/// The tensor `[batch, seq, heads, head_dim]` rotated back token by token.
fn rotated_back(case: &Case, x: &[f32], heads: usize, tables: &RopeCase) -> Vec<f64> {
    let (seq, head_dim) = (case.shape.seq, case.shape.head_dim);
    let (cos, sin) = (doubles(&tables.cos), doubles(&tables.sin));
    let half = head_dim / 2;
    let token = |(index, x): (usize, &[f32])| {
        let counted = (index % seq) as u32;
        let position = tables.token_positions.as_ref().map_or(counted, |tokens| tokens[index]);
        let first = (position as usize).min(tables.positions - 1) * half;
        let [cos, sin] = [&cos, &sin].map(|table| &table[first..first + half]);
        rope(&doubles(x), cos, sin, [1, heads, head_dim], true)
    };
    x.chunks(heads * head_dim).enumerate().flat_map(token).collect()
}

fn gradients_are_rotated_back(device: impl Fn() -> Device, shapes: &[[usize; 5]]) {
    let mut data = Data::new("attention rope");
    for (sizes, has_positions) in shapes.iter().flat_map(|sizes| [(sizes, false), (sizes, true)]) {
        let mut case = Case::new(&mut data, DType::Bf16, *sizes);
        let [batch, seq, heads, kv_heads, head_dim] = *sizes;
        for splits in [1, heads / kv_heads] {
            case.rope = None;
            let plain = case.run_on(&device(), splits);
            let positions = if has_positions { seq.div_ceil(2) + 1 } else { seq + 3 };
            let angles = positions * head_dim / 2;
            let [cos, sin] = [(); 2].map(|()| data.uniform(angles, 1.0));
            // Positions of documents, some of them past the end of the tables.
            let tokens = (0..batch * seq).map(|token| (token * 7 % (seq + 2)) as u32);
            let token_positions = has_positions.then(|| tokens.collect());
            let tables = RopeCase { cos, sin, positions, token_positions };
            let expected_q = rotated_back(&case, &plain.q, heads, &tables);
            let expected_k = rotated_back(&case, &plain.k, kv_heads, &tables);
            case.rope = Some(tables);
            let results = case.run_on(&device(), splits);
            let what = format!("{sizes:?} in {splits}, positions given: {has_positions}");
            let size = |x: &[f64]| x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            for (name, actual, expected) in
                [("q", &results.q, &expected_q), ("k", &results.k, &expected_k)]
            {
                let tolerance = Tolerance::relative(1e-6).absolute(1e-6 * size(expected));
                tolerance.check(actual, expected, &format!("{name} of {what}"));
            }
            same_bits(&results.v, &plain.v, &format!("v of {what}"));
            let again = case.run_on(&device(), splits);
            same_bits(&results.all(), &again.all(), &format!("two runs of {what}"));
        }
    }
}

#[test]
fn gradients_match_the_rope_kernel() {
    gradients_are_rotated_back(Device::new, &SHAPES);
}

#[test]
fn targets_without_wgmma_rotate_alike() {
    for target in [75, 80] {
        let device = || Device::with_images_for(SmTarget::portable(target));
        gradients_are_rotated_back(device, &[[2, 37, 4, 2, 40], [1, 97, 2, 1, 64]]);
        gradients_are_rotated_back(device, &[[1, 70, 2, 2, 128], [1, 40, 2, 1, 256]]);
    }
}

#[test]
fn not_a_number_stays_in_its_pair_of_elements() {
    let mut data = Data::new("attention rope of NaN");
    let mut case = Case::new(&mut data, DType::Bf16, [1, 3, 1, 1, 64]);
    case.grad_out = vec![0.0; 3 * 64];
    let mut tables = RopeCase {
        cos: vec![1.0; 3 * 32],
        sin: vec![0.0; 3 * 32],
        positions: 3,
        token_positions: None,
    };
    tables.cos[32 + 5] = f32::NAN;
    case.rope = Some(tables);
    let results = case.run(1);
    for (at, gradient) in results.q.iter().enumerate() {
        let is_spoiled = at / 64 == 1 && at % 32 == 5;
        assert_eq!(gradient.is_nan(), is_spoiled, "element {at}: {gradient}");
    }
}

#[test]
fn rotations_that_do_not_fit_are_refused() {
    let shape = shape([1, 4, 2, 1, 8]);
    let view = |elements| View::<u64, f32>::new(4096, elements);
    let rounded = |elements| View::<u64, half::bf16>::new(4096, elements).into();
    let [q, k] = [64, 32].map(rounded);
    let good = AttentionRope { cos: view(16), sin: view(16), positions: 4, token_positions: None };
    let inputs = AttentionBackwardInputs {
        q,
        k,
        v: k,
        grad_out: q,
        lse_delta: view(512),
        split_f16: None,
        bounds: None,
        shape,
        scale: 0.5,
        softcap: None,
    };
    let launch = |inputs, rope| {
        FusedAttentionGradQ { inputs, grad_q: view(64).into(), rope: Some(rope) }.launch()
    };
    assert!(launch(inputs, good).is_ok());
    let text = |rope| launch(inputs, rope).unwrap_err().to_string();
    assert!(text(AttentionRope { cos: view(15), ..good }).contains("cos"));
    assert!(text(AttentionRope { sin: view(17), ..good }).contains("sin"));
    assert!(text(AttentionRope { positions: 3, ..good }).contains("a row for each position"));
    let few = AttentionRope { token_positions: Some(View::new(4096, 3)), ..good };
    assert!(text(few).contains("token_positions"));
    let shifted = AttentionRope { sin: view(17).slice(1..17), ..good };
    assert!(text(shifted).contains("16 bytes"));
    let [q, k] = [view(64).into(), view(32).into()];
    let in_f32 = AttentionBackwardInputs { q, k, v: k, grad_out: q, ..inputs };
    let refused = launch(in_f32, good).unwrap_err();
    assert!(matches!(refused, KernelError::UnsupportedDType { .. }), "{refused}");
    let grads = FusedAttentionGradKv {
        inputs: in_f32,
        grads: view(64).into(),
        splits: 1,
        rope: Some(good),
    };
    assert!(matches!(grads.launch(), Err(KernelError::UnsupportedDType { .. })));
}
