//! The approximate functions against correctly rounded values; edges of extrema and saturation.

use super::*;

#[test]
fn exp2_and_log2_are_correctly_rounded_on_a_sweep() {
    let mut state = 1u32;
    for _ in 0..200_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = f(state);
        let (exp, log) = (f(exp2(state)), f(log2(state)));
        if x.is_nan() {
            assert_eq!((exp2(state), log2(state)), (NAN_F32, NAN_F32));
            continue;
        }
        // The host library may be off by a unit in the last place of f64, which can change a tie.
        let near = |got: f32, want: f64| {
            let want = want as f32;
            got == want || (got.to_bits() as i64 - want.to_bits() as i64).abs() <= 1
        };
        assert!(near(exp, f64::from(x).exp2()), "exp2({x}) = {exp}");
        assert!(if x < 0.0 { log.is_nan() } else { near(log, f64::from(x).log2()) }, "{x} {log}");
    }
    assert_eq!(f(exp2((-140.0f32).to_bits())).to_bits(), 1 << 9);
    assert_eq!(f(exp2(f32::NEG_INFINITY.to_bits())), 0.0);
    assert_eq!(f(exp2(f32::INFINITY.to_bits())), f32::INFINITY);
    assert_eq!(f(log2(0)), f32::NEG_INFINITY);
    assert_eq!(f(log2(1)), -149.0);
    assert_eq!(f(log2(8.0f32.to_bits())), 3.0);
}

#[test]
fn minimum_and_maximum_order_zeros_and_skip_nans() {
    let (plus, minus, nan) = (0u32, 0x8000_0000u32, 0x7fc0_0001u32);
    assert_eq!((min(plus, minus), min(minus, plus)), (minus, minus));
    assert_eq!((max(plus, minus), max(minus, plus)), (plus, plus));
    assert_eq!((min(nan, minus), max(minus, nan)), (minus, minus));
    assert_eq!((min(nan, nan), max(nan, nan)), (NAN_F32, NAN_F32));
    let (one, two) = (1.0f32.to_bits(), 2.0f32.to_bits());
    assert_eq!((min(two, one), max(one, two)), (one, two));
    assert_eq!(extremum64(0, 1 << 63, false), 1 << 63);
    assert_eq!(extremum64(1 << 63, 0, true), 0);
}

#[test]
fn saturation_turns_nan_into_zero() {
    let clamp = |x: f32| f(saturate(x.to_bits()));
    assert_eq!([clamp(f32::NAN), clamp(-1.0), clamp(0.25), clamp(7.0)], [0.0, 0.0, 0.25, 1.0]);
}
