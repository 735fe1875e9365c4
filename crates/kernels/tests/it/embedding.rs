//! Embedding and its backward pass.

use retrograph_kernels::embedding::reference::{embedding, embedding_backward};
use retrograph_kernels::ops::{Embedding, EmbeddingBackward};

use crate::gemm_case::{Format, rounded};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

/// Positions, hidden, vocabulary: one of each, both sides of a warp of positions, rows that need
/// two blocks, primes, a vocabulary far larger than the number of positions, more positions than
/// one warp and several warps list at a time, and zero.
const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (31, 3, 7),
    (32, 4, 5),
    (33, 8, 257),
    (100, 13, 11),
    (6, 1030, 3),
    (9, 4, 50_000),
    (67, 5, 1),
    (1025, 5, 3),
    (2600, 4, 90),
    (1100, 260, 40),
    (0, 8, 3),
];

fn forward(tokens: &[u32], table: &[f32], hidden: usize) -> Vec<f32> {
    scaled(tokens, table, hidden, 1.0)
}

fn scaled(tokens: &[u32], table: &[f32], hidden: usize, scale: f32) -> Vec<f32> {
    let device = Device::new();
    let out = device.upload(&vec![3.0_f32; tokens.len() * hidden]);
    let (tokens, vocab) = (device.upload(tokens), table.len() / hidden);
    let table = device.upload(table);
    device.run(&Embedding { tokens, table, out, hidden, vocab, scale }.launch().unwrap());
    device.download(out)
}

/// `before` with the gradients added; its buffer starts `shift` elements before it.
fn backward(
    tokens: &[u32],
    grad_out: &[f32],
    before: &[f32],
    hidden: usize,
    shift: usize,
) -> Vec<f32> {
    scaled_backward(tokens, grad_out, before, hidden, shift, 1.0)
}

fn scaled_backward(
    tokens: &[u32],
    grad_out: &[f32],
    before: &[f32],
    hidden: usize,
    shift: usize,
    scale: f32,
) -> Vec<f32> {
    let device = Device::new();
    let padded = [&vec![f32::NAN; shift], before].concat();
    let grad_table = device.upload(&padded).slice(shift..shift + before.len());
    let (tokens, grad_out) = (device.upload(tokens), device.upload(grad_out));
    let vocab = before.len() / hidden;
    let backward = EmbeddingBackward { tokens, grad_out, grad_table, hidden, vocab, scale };
    device.run(&backward.launch().unwrap());
    device.download(grad_table)
}

#[test]
fn a_table_in_bf16_gives_the_same_numbers_in_f32() {
    let mut data = Data::new("embedding bf16");
    for (positions, hidden, vocab) in SHAPES {
        for shift in [0, 1, 8] {
            let device = Device::new();
            let tokens = data.tokens(positions, vocab);
            let mut table = rounded(&data.spread(vocab * hidden));
            (table[0], table[vocab * hidden / 2]) = (f32::NAN, f32::NEG_INFINITY);
            let out = device.unwritten(tokens.len() * hidden);
            let view = Format::Bf16.upload(&device, &table, shift);
            let (tokens_view, scale) = (device.upload(&tokens), 1.0);
            let rows = Embedding { tokens: tokens_view, table: view, out, hidden, vocab, scale };
            device.run(&rows.launch().unwrap());
            let expected = tokens.iter().map(|&token| &table[token as usize * hidden..][..hidden]);
            let found = device.download(out);
            for (found, expected) in found.iter().zip(expected.collect::<Vec<_>>().concat()) {
                assert!(*found == expected || (found.is_nan() && expected.is_nan()), "{found}");
            }
        }
    }
}

#[test]
fn a_table_in_nf4_is_refused() {
    let device = Device::new();
    let (tokens, out) = (device.upload(&[0u32]), device.unwritten(8));
    let table = Format::Nf4.upload(&device, &[1.0; 8], 0);
    let error =
        Embedding { tokens, table, out, hidden: 8, vocab: 1, scale: 1.0 }.launch().unwrap_err();
    assert!(error.to_string().contains("NF4"), "{error}");
}

#[test]
fn rows_are_copied_bit_for_bit() {
    let mut data = Data::new("embedding");
    for (positions, hidden, vocab) in SHAPES {
        let tokens = data.tokens(positions, vocab);
        let mut table = data.spread(vocab * hidden);
        table[0] = f32::NAN;
        let rows = tokens.iter().map(|&token| &table[token as usize * hidden..][..hidden]);
        let expected = rows.collect::<Vec<_>>().concat();
        same_bits(&forward(&tokens, &table, hidden), &expected, "embedding");
    }
}

/// The tolerance of sums of gradients of at most `scale`. A token has up to about 350 of them. An
/// addition to a partial sum below 64 rounds by at most 2⁻¹⁹; that many roundings of random sign
/// add up to about 2e-5.
fn sum_tolerance(scale: f32) -> Tolerance {
    Tolerance::relative(1e-6).absolute(5e-5 * f64::from(scale))
}

#[test]
fn rows_and_gradients_are_scaled() {
    let mut data = Data::new("scaled embedding");
    for ((positions, hidden, vocab), scale) in
        SHAPES.into_iter().zip([0.5, -3.0, 27.7].into_iter().cycle())
    {
        let tokens = data.tokens(positions, vocab);
        let (table, grad_out) =
            (data.uniform(vocab * hidden, 1.0), data.uniform(positions * hidden, 1.0));
        let expected: Vec<f32> =
            forward(&tokens, &table, hidden).into_iter().map(|value| value * scale).collect();
        same_bits(&scaled(&tokens, &table, hidden, scale), &expected, "rows");
        let actual = scaled_backward(&tokens, &grad_out, &table, hidden, 0, scale);
        let mut expected = doubles(&table);
        let grads: Vec<f64> = grad_out.iter().map(|&grad| f64::from(grad * scale)).collect();
        embedding_backward(&tokens, &grads, &mut expected, hidden);
        sum_tolerance(scale.abs()).check(&actual, &expected, "gradients");
    }
}

#[test]
fn a_token_outside_the_table_gives_nan_and_no_gradient() {
    let table: Vec<f32> = (0..15).map(|i| i as f32).collect();
    let tokens = [2, 3, u32::MAX, 0];
    let out = forward(&tokens, &table, 5);
    Tolerance::relative(0.0).check(&out, &embedding(&tokens, &doubles(&table), 5), "outside");
    assert!(out[5..15].iter().all(|x| x.is_nan()), "positions 1 and 2 are outside");
    let grad_out = [1.0_f32; 20];
    let grads = backward(&tokens, &grad_out, &[0.0; 15], 5, 0);
    assert_eq!(grads, [[1.0; 5], [0.0; 5], [1.0; 5]].concat());
}

#[test]
fn gradients_of_a_token_add_up() {
    let mut data = Data::new("embedding_backward");
    for (positions, hidden, vocab) in SHAPES {
        let tokens = data.tokens(positions, vocab);
        let (grad_out, before) =
            (data.uniform(positions * hidden, 1.0), data.uniform(vocab * hidden, 1.0));
        let actual = backward(&tokens, &grad_out, &before, hidden, 0);
        let mut expected = doubles(&before);
        embedding_backward(&tokens, &doubles(&grad_out), &mut expected, hidden);
        sum_tolerance(1.0).check(&actual, &expected, "embedding_backward");
        let again = backward(&tokens, &grad_out, &before, hidden, 0);
        same_bits(&actual, &again, "two runs");
        let unaligned = backward(&tokens, &grad_out, &before, hidden, 1);
        same_bits(&actual, &unaligned, "aligned and unaligned operands");
        for row in (0..vocab as u32).filter(|row| !tokens.contains(row)) {
            let row = row as usize * hidden..(row as usize + 1) * hidden;
            same_bits(&actual[row.clone()], &before[row], "a row without a position");
        }
    }
}

#[test]
fn the_sum_of_a_row_is_taken_position_by_position() {
    let mut data = Data::new("embedding_backward order");
    let (tokens, grad_out) = ([4_u32; 1100], data.spread(1100));
    let sum = grad_out.iter().fold(0.0_f32, |sum, grad| sum + grad);
    let actual = backward(&tokens, &grad_out, &[0.0; 6], 1, 0);
    same_bits(&actual, &[0.0, 0.0, 0.0, 0.0, sum, 0.0], "in order");
}

#[test]
fn nan_reaches_only_its_own_row() {
    let mut grad_out = vec![1.0; 12];
    grad_out[4] = f32::NAN;
    let grads = backward(&[0, 1, 2], &grad_out, &[0.0; 12], 4, 0);
    let places: Vec<_> = (0..12).filter(|&i| grads[i].is_nan()).collect();
    assert_eq!(places, [4]);
}

#[test]
fn backward_agrees_with_differences_of_the_forward_pass() {
    let mut data = Data::new("embedding differences");
    let tokens = data.tokens(23, 5);
    let (table, grad_out) = (data.uniform(5 * 3, 1.0), data.uniform(23 * 3, 1.0));
    let actual = backward(&tokens, &grad_out, &[0.0; 15], 3, 0);
    let grad_out = doubles(&grad_out);
    let expected = differences(&doubles(&table), 1e-3, |table| {
        embedding(&tokens, table, 3).iter().zip(&grad_out).map(|(y, grad)| y * grad).sum()
    });
    // The loss is linear, so differences are exact in f64; about five gradients of a token round.
    Tolerance::relative(1e-5).absolute(1e-5).check(&actual, &expected, "differences");
}
