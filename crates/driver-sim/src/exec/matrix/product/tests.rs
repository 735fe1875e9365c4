//! Values of f16 elements.

use super::*;

#[test]
fn f16_and_bf16_have_the_values_of_their_formats() {
    for bits in 0..=0xffffu32 {
        let (fast, slow) = (f64::from(of_half(bits)), Format::F16.widen(bits));
        assert!(fast == slow || fast.is_nan() && slow.is_nan(), "{bits:#x}");
        assert_eq!(fast.is_sign_negative(), bits >> 15 == 1);
    }
}
