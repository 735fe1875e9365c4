//! `cvt`, `mov` and `cvta`.

use super::{binary, binary_wide, sweep};

#[test]
fn floats_and_integers() {
    let input = [(2.5f32.to_bits(), 0), ((-2.5f32).to_bits(), 0), (1e20f32.to_bits(), 0)];
    let to = |mode: &str, ty: &str| {
        binary(&format!("mov.b32 %f1, %r7; cvt.{mode}.{ty}.f32 %r9, %f1;"), &input)
    };
    assert_eq!(to("rni", "s32"), [2, (-2i32) as u32, 0x7fff_ffff]);
    assert_eq!(to("rzi", "s32"), [2, (-2i32) as u32, 0x7fff_ffff]);
    assert_eq!(to("rmi", "s32"), [2, (-3i32) as u32, 0x7fff_ffff]);
    assert_eq!(to("rpi", "u32"), [3, 0, u32::MAX]);
    let from = |ty: &str| {
        binary(&format!("cvt.rn.f32.{ty} %f1, %r7; mov.b32 %r9, %f1;"), &[(u32::MAX, 0)])
    };
    assert_eq!(from("u32"), [4_294_967_296.0f32.to_bits()]);
    assert_eq!(from("s32"), [(-1.0f32).to_bits()]);
    let round = "mov.b32 %f1, %r7; cvt.rni.f32.f32 %f2, %f1; mov.b32 %r9, %f2;";
    assert_eq!(binary(round, &input)[..2], [2.0f32.to_bits(), (-2.0f32).to_bits()]);
}

#[test]
fn floats_become_integers_by_mode_and_saturate() {
    let f = f32::to_bits;
    let to = |conversion: &str, value: u32| {
        binary(&format!("mov.b32 %f1, %r7; cvt.{conversion}.f32 %r9, %f1;"), &[(value, 0)])[0]
    };
    let modes = ["rni", "rzi", "rmi", "rpi"];
    let in_modes = |value| modes.map(|mode| to(&format!("{mode}.s32"), f(value)).cast_signed());
    assert_eq!(in_modes(-2.5), [-2, -2, -3, -2]);
    assert_eq!(in_modes(3.5), [4, 3, 3, 4]);
    assert_eq!([in_modes(1e20), in_modes(-1e20)], [[i32::MAX; 4], [i32::MIN; 4]]);
    assert_eq!(in_modes(f32::NAN), [0; 4]);
    assert_eq!([to("rzi.u32", f(-5.0)), to("rzi.u8", f(300.0))], [0, 255]);
    let body = "mov.b64 %d1, %rd7; cvt.rzi.s64.f64 %rd9, %d1;";
    let doubles = [(f64::NAN.to_bits(), 0), ((-7.9f64).to_bits(), 0)];
    assert_eq!(binary_wide(body, &doubles), [1 << 63, (-7i64) as u64]);
}

#[test]
fn integers_become_floats_by_mode() {
    let from = |conversion: &str, value: u32| {
        let body = format!("cvt.{conversion} %f1, %r7; mov.b32 %r9, %f1;");
        f32::from_bits(binary(&body, &[(value, 0)])[0])
    };
    let odd = (1 << 24) + 1;
    assert_eq!([from("rn.f32.u32", odd), from("rp.f32.u32", odd)], [16_777_216.0, 16_777_218.0]);
    assert_eq!([from("rm.f32.u32", odd), from("rz.f32.u32", odd)], [16_777_216.0; 2]);
    assert_eq!(from("rz.f32.s32", (-3i32).cast_unsigned()), -3.0);
    let body = "cvt.rm.f64.u64 %d1, %rd7; mov.b64 %rd9, %d1;";
    let most = 18_446_744_073_709_549_568.0f64;
    assert_eq!(binary_wide(body, &[(u64::MAX, 0)]), [most.to_bits()]);
    let body = "cvt.rn.f16.u64 %h1, %rd7; cvt.u64.u16 %rd9, %h1;";
    assert_eq!(binary_wide(body, &[(1 << 40, 0), (3, 0)]), [0x7c00, 0x4200]);
}

#[test]
fn widths() {
    let low = "cvt.u32.u64 %r5, %rd7;";
    let minus = u64::from(u32::MAX);
    assert_eq!(binary_wide(&format!("{low} cvt.u64.u32 %rd9, %r5;"), &[(minus, 0)]), [minus]);
    assert_eq!(binary_wide(&format!("{low} cvt.s64.s32 %rd9, %r5;"), &[(minus, 0)]), [u64::MAX]);
    assert_eq!(binary("cvt.s8.s32 %r9, %r7;", &[(0x180, 0)]), [0xffff_ff80]);
    assert_eq!(binary("cvt.u8.u32 %r9, %r7;", &[(0x180, 0)]), [0x80]);
    assert_eq!(binary("cvt.s32.s8 %r9, %r7;", &[(0x180, 0)]), [0xffff_ff80]);
    let low = "cvt.u16.u64 %h1, %rd7; cvt.u64.u16 %rd9, %h1;";
    assert_eq!(binary_wide(low, &[(0x12345, 0)]), [0x2345]);
    assert_eq!(binary("cvt.sat.u8.s32 %r9, %r7;", &[(0x180, 0), (u32::MAX, 0)]), [255, 0]);
}

#[test]
fn f64_and_f16_convert() {
    let body = "cvt.rn.f32.f64 %f1, %d1; cvt.f64.f32 %d2, %f1; mov.b64 %rd9, %d2;";
    let body = format!("mov.b64 %d1, %rd7; {body}");
    let tenth = f64::from(0.1f32).to_bits();
    assert_eq!(binary_wide(&body, &[(0.1f64.to_bits(), 0)]), [tenth]);
    let saturated = "mov.b32 %f1, %r7; cvt.sat.f32.f32 %f2, %f1; mov.b32 %r9, %f2;";
    let values = [2.0, f32::NAN, -1.0, 0.25].map(|value| (value.to_bits(), 0));
    assert_eq!(binary(saturated, &values), [1.0, 0.0, 0.0, 0.25].map(f32::to_bits));
    let half = "mov.b32 %f1, %r7; cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f2, %h1; mov.b32 %r9, %f2;";
    let third = (1.0f32 / 3.0).to_bits();
    assert_eq!(binary(half, &[(third, 0)]), [0.333_251_95f32.to_bits()]);
}

#[test]
fn bf16_converts_from_and_to_8_bits() {
    const MODES: [&str; 4] = ["rni", "rzi", "rmi", "rpi"];
    let input: Vec<[u32; 1]> = (0..=0xffff).map(|bits| [bits]).collect();
    let each = |ty: &str| -> String {
        MODES
            .iter()
            .zip(20..)
            .map(|(mode, d)| format!("cvt.{mode}.{ty}.bf16 %b, %h1; cvt.u32.u8 %r{d}, %b;"))
            .collect()
    };
    let body = |ty: &str| format!("{{ .reg .b8 %b; cvt.u16.u32 %h1, %r10; {} }}", each(ty));
    let (signed, unsigned) = (sweep::<1, 4>(&body("s8"), &input), sweep(&body("u8"), &input));
    for ((&[bits], signed), unsigned) in input.iter().zip(signed).zip(unsigned) {
        let value = f32::from_bits(bits << 16);
        // A cast saturates, and gives 0 for a NaN.
        let rounded = [value.round_ties_even(), value.trunc(), value.floor(), value.ceil()];
        let want = rounded.map(|value| u32::from((value as i8).cast_unsigned()));
        assert_eq!(signed, want, "{value} to s8");
        assert_eq!(unsigned, rounded.map(|value| u32::from(value as u8)), "{value} to u8");
    }
    let input: Vec<[u32; 1]> = (0..=0xff).map(|bits| [bits]).collect();
    let body = "{ .reg .b8 %b; cvt.u8.u32 %b, %r10;
        cvt.rn.bf16.s8 %h1, %b; cvt.rz.bf16.u8 %h2, %b; mov.b32 %r20, {%h1, %h2}; }";
    for (&[bits], [found]) in input.iter().zip(sweep(body, &input)) {
        let upper = |value: f32| value.to_bits() >> 16;
        // bf16 has every integer of 8 bits.
        let (signed, unsigned) = (upper((bits as i8).into()), upper((bits as u8).into()));
        assert_eq!(found, unsigned << 16 | signed, "{bits:#x}");
    }
}

#[test]
fn vectors_pack_and_unpack() {
    let body = "mov.b64 %rd9, {%r5, %r6};";
    let body = format!("cvt.u32.u64 %r5, %rd7; cvt.u32.u64 %r6, %rd8; {body}");
    assert_eq!(binary_wide(&body, &[(1, 2)]), [2 << 32 | 1]);
    let body = "mov.b64 {%r5, %r6}, %rd7; cvt.u64.u32 %rd9, %r6;";
    assert_eq!(binary_wide(body, &[(7 << 32 | 5, 0)]), [7]);
    let body = "mov.b32 {%h1, %h2}, %r7; mov.b32 %r9, {%h2, %h1};";
    assert_eq!(binary(body, &[(0x1234_5678, 0)]), [0x5678_1234]);
    let bytes = "{ .reg .b8 %b<5>; .reg .s8 %s; mov.b32 {%b1, %b2, %b3, %b4}, %r7; BODY }";
    let bytes = |body: &str| binary(&bytes.replace("BODY", body), &[(0x1234_5678, 0)]);
    assert_eq!(bytes("mov.b32 %r9, {%b4, 0, %b2, %b3};"), [0x3456_0012]);
    let halves = "mov.b16 %h1, {%b1, %b4}; mov.b16 {%b2, _}, %h1; mov.b16 %h2, {0, %b2};";
    assert_eq!(bytes(&format!("{halves} mov.b32 %r9, {{%h1, %h2}};")), [0x7800_1278]);
    // A negative value fills only its own byte.
    let signed = "cvt.s8.s32 %s, -2; mov.b16 %h1, {%s, 1}; cvt.u32.u16 %r9, %h1;";
    assert_eq!(bytes(signed), [0x1fe]);
}

#[test]
fn special_registers() {
    let body = "mov.u32 %r4, %laneid; mov.u32 %r5, %warpid; mov.u32 %r6, %lanemask_lt;
        popc.b32 %r6, %r6;
        mad.lo.u32 %r9, %r5, 100, %r4;
        mad.lo.u32 %r9, %r6, 10000, %r9;";
    let found = binary(body, &[(0, 0); 40]);
    assert_eq!((found[0], found[31], found[33]), (0, 310_031, 10_101));
}
