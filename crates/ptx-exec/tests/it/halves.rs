//! Arithmetic and comparisons of f16 and bf16.

use half::{bf16, f16};

use super::{binary, sweep};

/// Runs an instruction on 16-bit values.
fn run(instruction: &str, pairs: &[(u32, u32)]) -> Vec<u32> {
    let body =
        format!("cvt.u16.u32 %h1, %r7; cvt.u16.u32 %h2, %r8; {instruction}; cvt.u32.u16 %r9, %h9;");
    binary(&body, pairs)
}

#[test]
fn fused_results_are_rounded_once() {
    // 1 + 2^-11 is a tie, which rounds to even; any greater value rounds up.
    assert_eq!(run("add.f16 %h9, %h1, %h2", &[(0x3c00, 0x1000)]), [0x3c00]);
    // 2^-24 · (1 + 2^-10) + 1 + 2^-11 equals the tie in f32.
    assert_eq!(run("fma.rn.f16 %h9, %h1, %h2, %h2", &[(0x0001, 0x3c01)]), [0x3c01]);
    let addend = "mov.b16 %h3, 0x3c00; fma.rn.f16 %h9, %h1, %h2, %h3";
    assert_eq!(run(addend, &[(0x0001, 0x3c01)]), [0x3c00]);
    // 1 + 2^-8 is a tie in bf16.
    assert_eq!(run("fma.rn.bf16 %h9, %h1, %h2, %h1", &[(0x3f80, 0x3b80)]), [0x3f80]);
    assert_eq!(run("add.rn.bf16 %h9, %h1, %h2", &[(0x3f80, 0x3b81)]), [0x3f81]);
}

#[test]
fn sums_and_products_are_rounded_to_nearest() {
    let input: Vec<[u32; 2]> =
        (0..=0xffff).map(|bits: u32| [bits, bits.wrapping_mul(40_503) >> 3 & 0xffff]).collect();
    let check = |ty: &str, value: fn(u16) -> f64, narrow: fn(f64) -> u16| {
        let body = format!(
            "cvt.u16.u32 %h1, %r10; cvt.u16.u32 %h2, %r11;
            add.rn.{ty} %h3, %h1, %h2; mul.rn.{ty} %h4, %h1, %h2;
            cvt.u32.u16 %r20, %h3; cvt.u32.u16 %r21, %h4;"
        );
        let found: Vec<[u32; 2]> = sweep(&body, &input);
        for (&bits, found) in input.iter().zip(found) {
            // A product is exact in f64. A sum is, too, or the smaller addend does not matter.
            let [a, b] = bits.map(|bits| value(bits as u16));
            let want = [a + b, a * b];
            let want = want.map(|x| if x.is_nan() { 0x7fff } else { narrow(x).into() });
            assert_eq!(found, want, "{ty} {bits:x?}");
        }
    };
    check("f16", |bits| f16::from_bits(bits).to_f64(), |x| f16::from_f64(x).to_bits());
    check("bf16", |bits| bf16::from_bits(bits).to_f64(), |x| bf16::from_f64(x).to_bits());
}

#[test]
fn packed_operations_have_two_results() {
    let pairs = [(0x4000_3c00, 0x4200_c000)];
    assert_eq!(binary("mul.f16x2 %r9, %r7, %r8;", &pairs), [0x4600_c000]);
    assert_eq!(binary("add.f16x2 %r9, %r7, %r8;", &pairs), [0x4500_bc00]);
}

#[test]
fn results_are_clamped() {
    let relu = "fma.rn.relu.f16 %h9, %h1, %h2, %h2";
    assert_eq!(run(relu, &[(0xbc00, 0x3c00), (0xc000, 0x3c00), (0x7e01, 0x3c00)]), [0, 0, 0x7fff]);
    let saturated = run("add.sat.f16 %h9, %h1, %h2", &[(0x4000, 0), (0x7e00, 0), (0xbc00, 0)]);
    assert_eq!(saturated, [0x3c00, 0, 0]);
}

#[test]
fn min_and_max_order_zeros_and_handle_nan() {
    let zeros = [(0, 0x8000), (0x8000, 0)];
    assert_eq!(run("min.f16 %h9, %h1, %h2", &zeros), [0x8000; 2]);
    assert_eq!(run("max.f16 %h9, %h1, %h2", &zeros), [0; 2]);
    let nans = [(0x7e00, 0x3c00), (0x3c00, 0x7e00), (0x7e00, 0x7e00)];
    assert_eq!(run("min.f16 %h9, %h1, %h2", &nans), [0x3c00, 0x3c00, 0x7fff]);
    assert_eq!(
        run("max.bf16 %h9, %h1, %h2", &[(0x7fc0, 0x3f80), (0x7fc0, 0x7fc0)]),
        [0x3f80, 0x7fff]
    );
    assert_eq!(run("max.NaN.f16 %h9, %h1, %h2", &nans), [0x7fff; 3]);
    let signed = run("max.xorsign.abs.f16 %h9, %h1, %h2", &[(0xc000, 0x3c00), (0xc000, 0xbc00)]);
    assert_eq!(signed, [0xc000, 0x4000]);
}

#[test]
fn packed_comparisons_have_a_predicate_for_each_half() {
    let body = |relation: &str| {
        format!(
            "setp.{relation}.f16x2 %p1|%p2, %r7, %r8;
            selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; or.b32 %r9, %r5, %r6;"
        )
    };
    // The lower halves are 1 and 2, the upper ones 2 and 1; then NaN and 1, and 1 and 1.
    let pairs = [(0x4000_3c00, 0x3c00_4000), (0x3c00_7e00, 0x3c00_3c00)];
    assert_eq!(binary(&body("lt"), &pairs), [1, 0]);
    assert_eq!(binary(&body("gt"), &pairs), [2, 0]);
    assert_eq!(binary(&body("ltu"), &pairs), [1, 1]);
    assert_eq!(binary(&body("eq"), &pairs), [0, 2]);
    assert_eq!(binary("set.lt.f16x2.f16x2 %r9, %r7, %r8;", &pairs), [0x0000_3c00, 0]);
}
