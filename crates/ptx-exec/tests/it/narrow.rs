//! Conversions to 8-bit formats, tf32 and bf16, and their modifiers.

use half::f16;

use super::{binary_f32, sweep};

/// Runs a conversion of single values to 16 or 32 bits.
fn narrow(conversion: &str, values: &[f32]) -> Vec<u32> {
    let body = if conversion.contains("tf32") {
        format!("cvt.{conversion}.f32 %r5, %f7; mov.b32 %f9, %r5;")
    } else {
        format!("cvt.{conversion}.f32 %h1, %f7; cvt.u32.u16 %r5, %h1; mov.b32 %f9, %r5;")
    };
    let pairs: Vec<(f32, f32)> = values.iter().map(|&value| (value, 0.0)).collect();
    binary_f32(&body, &pairs)
}

/// Runs a conversion of pairs; the first value goes to the upper half.
fn narrow_pairs(conversion: &str, pairs: &[(f32, f32)]) -> Vec<u32> {
    let body = if conversion.contains("f16x2") {
        format!("cvt.{conversion}.f32 %r5, %f7, %f8; mov.b32 %f9, %r5;")
    } else {
        format!("cvt.{conversion}.f32 %h1, %f7, %f8; cvt.u32.u16 %r5, %h1; mov.b32 %f9, %r5;")
    };
    binary_f32(&body, pairs)
}

/// The value of a byte, or `None` for NaN and infinity, from the definition of its format.
fn value_of(byte: u32, mantissa_bits: i32) -> Option<f32> {
    let (bias, mantissa) = if mantissa_bits == 3 { (7, byte & 7) } else { (15, byte & 3) };
    let exponent = (byte & 0x7f) as i32 >> mantissa_bits;
    let special = match mantissa_bits {
        3 => byte & 0x7f == 0x7f,
        _ => exponent == 31,
    };
    let scale = 2.0f32.powi(exponent.max(1) - bias - mantissa_bits);
    let hidden = if exponent > 0 { 1 << mantissa_bits } else { 0 };
    let magnitude = (mantissa + hidden) as f32 * scale;
    (!special).then_some(if byte & 0x80 != 0 { -magnitude } else { magnitude })
}

#[test]
fn every_byte_widens_to_its_value_and_back() {
    for (ty, mantissa_bits) in [("e4m3x2", 3), ("e5m2x2", 2)] {
        let input: Vec<[u32; 1]> = (0..=0xffff).map(|bits| [bits]).collect();
        let body = format!(
            "cvt.u16.u32 %h1, %r10; cvt.rn.f16x2.{ty} %r20, %h1;
            cvt.rn.satfinite.{ty}.f16x2 %h2, %r20; cvt.u32.u16 %r21, %h2;
            mov.b32 {{%h3, %h4}}, %r20; cvt.f32.f16 %f1, %h3; cvt.f32.f16 %f2, %h4;
            cvt.rn.satfinite.{ty}.f32 %h5, %f2, %f1; cvt.u32.u16 %r22, %h5;"
        );
        let found: Vec<[u32; 3]> = sweep(&body, &input);
        for (bits, [wide, from_halves, from_singles]) in (0..).zip(found) {
            for shift in [0, 1] {
                let byte = bits >> (8 * shift) & 0xff;
                let half = f16::from_bits((wide >> (16 * shift)) as u16).to_f32();
                let back = [from_halves, from_singles].map(|word| word >> (8 * shift) & 0xff);
                match value_of(byte, mantissa_bits) {
                    Some(value) => {
                        assert_eq!(half.to_bits(), value.to_bits(), "{ty} {byte:#x}");
                        assert_eq!(back, [byte; 2], "{ty} {byte:#x}");
                    }
                    None if half.is_nan() => assert_eq!(back, [0x7f; 2], "{ty} {byte:#x}"),
                    None => {
                        // Infinity saturates to the maximum.
                        let most = byte & 0x80 | 0x7b;
                        assert_eq!((ty, back), ("e5m2x2", [most; 2]), "{byte:#x}");
                        assert!(half.is_infinite());
                    }
                }
            }
        }
    }
    assert_eq!((value_of(0x7e, 3), value_of(0x7b, 2)), (Some(448.0), Some(57344.0)));
}

#[test]
fn values_between_bytes_go_to_the_nearest() {
    for (ty, mantissa_bits) in [("e4m3x2", 3), ("e5m2x2", 2)] {
        // The midpoint of two neighbours is a tie, and goes to the even one.
        let most = if mantissa_bits == 3 { 0x7e } else { 0x7b };
        let pairs: Vec<(f32, f32)> = (0..most)
            .map(|byte| {
                let of = |byte| value_of(byte, mantissa_bits).unwrap();
                let middle = (of(byte) + of(byte + 1)) / 2.0;
                (-middle, middle.next_up())
            })
            .collect();
        let found = narrow_pairs(&format!("rn.satfinite.{ty}"), &pairs);
        for (byte, found) in (0..most).zip(found) {
            let even = byte + byte % 2;
            assert_eq!(found, (even | 0x80) << 8 | (byte + 1), "{ty} {byte:#x}");
        }
    }
}

#[test]
fn values_out_of_range_become_infinite_or_saturate() {
    assert_eq!(narrow("rn.f16", &[1e6, -1e6]), [0x7c00, 0xfc00]);
    assert_eq!(narrow("rn.satfinite.f16", &[1e6, -1e6, f32::INFINITY]), [0x7bff, 0xfbff, 0x7bff]);
    let bytes = narrow_pairs("rn.satfinite.e4m3x2", &[(464.0, 1e9), (-1e9, 252.0)]);
    assert_eq!(bytes, [0x7e7e, 0xfe78]);
    assert_eq!(narrow_pairs("rn.satfinite.e4m3x2", &[(f32::NAN, 1.0)]), [0x7f38]);
}

#[test]
fn relu_clamps_negative_numbers() {
    let values = [-1.0, -0.0, 1.0, f32::NAN];
    assert_eq!(narrow("rn.relu.f16", &values), [0, 0, 0x3c00, 0x7fff]);
    assert_eq!(narrow("rn.relu.bf16", &values), [0, 0, 0x3f80, 0x7fff]);
    assert_eq!(narrow_pairs("rn.relu.f16x2", &[(-1.0, 2.0)]), [0x4000]);
    assert_eq!(narrow_pairs("rn.satfinite.relu.e4m3x2", &[(-1.0, 1.0)]), [0x38]);
}

#[test]
fn tf32_keeps_ten_bits() {
    let tie = f32::from_bits(0x3f80_1000);
    let above = f32::from_bits(0x3f80_1001);
    let odd = f32::from_bits(0x3f80_3000);
    let values = [tie, above, odd, f32::from_bits(0x3f80_1fff), f32::MAX, f32::NAN];
    let infinity = f32::INFINITY.to_bits();
    let nearest = [0x3f80_0000, 0x3f80_2000, 0x3f80_4000, 0x3f80_2000, infinity, 0x7fff_e000];
    assert_eq!(narrow("rn.tf32", &values), nearest);
    let away = [0x3f80_2000, 0x3f80_2000, 0x3f80_4000, 0x3f80_2000, infinity];
    assert_eq!(narrow("rna.tf32", &values[..5]), away);
    let zero = [0x3f80_0000, 0x3f80_0000, 0x3f80_2000, 0x3f80_0000, 0x7f7f_e000, 0x7fff_e000];
    assert_eq!(narrow("rz.tf32", &values), zero);
}

#[test]
fn singles_narrow_to_bf16() {
    let edges = [0x7f7f_7fff, 0x7f7f_8000, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x8000_8000];
    let spread = (0..=0xffffu32).map(|i| i.wrapping_mul(0x1_0001).wrapping_add(i << 7));
    let ties = (0..=0xffffu32).flat_map(|i| [i << 16 | 0x7fff, i << 16 | 0x8000, i << 16 | 0x8001]);
    let input: Vec<[u32; 1]> =
        edges.into_iter().chain(spread).chain(ties).map(|bits| [bits]).collect();
    let body = "mov.b32 %f1, %r10; neg.f32 %f2, %f1;
        cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r20, %h1;
        cvt.rn.bf16x2.f32 %r21, %f1, %f2;
        cvt.rn.relu.bf16.f32 %h2, %f1; cvt.u32.u16 %r22, %h2;
        cvt.rz.bf16.f32 %h3, %f1; cvt.u32.u16 %r23, %h3;";
    let found: Vec<[u32; 4]> = sweep(body, &input);
    for ([bits], found) in input.into_iter().zip(found) {
        let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
        // The upper half, plus a carry from a lower half above the middle, or from an even tie.
        let near = if is_nan { 0x7fff } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 };
        let negative = if is_nan { 0x7fff } else { near ^ 0x8000 };
        let relu = if !is_nan && bits >> 31 == 1 { 0 } else { near };
        let zero = if is_nan { 0x7fff } else { bits >> 16 };
        assert_eq!(found, [near, near << 16 | negative, relu, zero], "{bits:#010x}");
    }
}

#[test]
fn the_first_of_two_values_goes_to_the_upper_half() {
    let pair = [(1.0, 2.0)];
    assert_eq!(narrow_pairs("rn.f16x2", &pair), [0x3c00_4000]);
    assert_eq!(narrow_pairs("rn.bf16x2", &pair), [0x3f80_4000]);
    assert_eq!(narrow_pairs("rn.satfinite.e5m2x2", &pair), [0x3c40]);
}
