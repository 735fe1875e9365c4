//! Floating-point arithmetic.

use super::{binary_f32, binary_wide, next_random, sweep};

const NAN: u32 = 0x7fff_ffff;

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Edge cases and ordinary values.
fn awkward() -> Vec<(f32, f32)> {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        3.0,
        1e-40,
        -1e-45,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f(0x7f80_0001),
        0.1,
        16_777_217.0,
    ];
    values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect()
}

fn expect(body: &str, function: impl Fn(f32, f32) -> f32) {
    let pairs = awkward();
    let found = binary_f32(body, &pairs);
    for (&(a, b), found) in pairs.iter().zip(found) {
        // `black_box` keeps the optimizer from deciding `is_nan` at compile time.
        let want = std::hint::black_box(function(a, b));
        let want = if want.is_nan() { NAN } else { want.to_bits() };
        assert_eq!(found, want, "{body} of {a:e} and {b:e}");
    }
}

#[test]
fn arithmetic_is_ieee_with_the_canonical_nan() {
    expect("add.rn.f32 %f9, %f7, %f8;", |a, b| a + b);
    expect("sub.f32 %f9, %f7, %f8;", |a, b| a - b);
    expect("mul.rn.f32 %f9, %f7, %f8;", |a, b| a * b);
    expect("div.rn.f32 %f9, %f7, %f8;", |a, b| a / b);
    expect("fma.rn.f32 %f9, %f7, %f8, %f7;", |a, b| a.mul_add(b, a));
    expect("sqrt.rn.f32 %f9, %f7;", |a, _| a.sqrt());
    expect("rcp.rn.f32 %f9, %f7;", |a, _| 1.0 / a);
    expect("rsqrt.approx.f32 %f9, %f7;", |a, _| (1.0 / f64::from(a).sqrt()) as f32);
}

#[test]
fn flushing_applies_to_operands_and_results() {
    let flush = |x: f32| if x.is_subnormal() { 0.0f32.copysign(x) } else { x };
    expect("mul.rn.ftz.f32 %f9, %f7, %f8;", |a, b| flush(flush(a) * flush(b)));
    expect("add.ftz.f32 %f9, %f7, %f8;", |a, b| flush(flush(a) + flush(b)));
}

#[test]
fn saturation_clamps_to_the_unit_interval() {
    let clamp = |x: f32| if x > 0.0 { x.min(1.0) } else { 0.0 };
    expect("add.sat.f32 %f9, %f7, %f8;", |a, b| clamp(a + b));
    expect("fma.rn.sat.f32 %f9, %f7, %f8, %f8;", |a, b| clamp(a.mul_add(b, b)));
}

#[test]
fn directed_rounding_encloses_the_exact_result() {
    for instruction in ["add.RND.f32 %f9, %f7, %f8", "mul.RND.f32 %f9, %f7, %f8"] {
        let pairs: Vec<(f32, f32)> =
            (0..500).map(|i| (0.1 + i as f32 * 1.37, 1e-7 - i as f32 * 0.0073)).collect();
        let run =
            |mode: &str| binary_f32(&format!("{};", instruction.replace("RND", mode)), &pairs);
        let (down, up, zero, near) = (run("rm"), run("rp"), run("rz"), run("rn"));
        for (i, &(a, b)) in pairs.iter().enumerate() {
            // A product is exact in f64; a sum is exact, too, or its error is far below one ulp.
            let (a, b) = (f64::from(a), f64::from(b));
            let exact = if instruction.starts_with("add") { a + b } else { a * b };
            let (low, high) = (f64::from(f(down[i])), f64::from(f(up[i])));
            assert!(low <= exact && exact <= high, "{instruction} {i}");
            assert!(low == high || f(down[i]).next_up() == f(up[i]), "{instruction} {i}");
            assert!(near[i] == down[i] || near[i] == up[i]);
            assert_eq!(zero[i], if exact > 0.0 { down[i] } else { up[i] });
        }
    }
}

#[test]
fn min_and_max_skip_nan_without_the_modifier() {
    let min = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    };
    expect("min.f32 %f9, %f7, %f8;", min);
    expect("max.f32 %f9, %f7, %f8;", |a, b| -min(-a, -b));
    expect("max.NaN.f32 %f9, %f7, %f8;", |a, b| {
        if a.is_nan() || b.is_nan() { f32::NAN } else { -min(-a, -b) }
    });
}

#[test]
fn approximations_are_near() {
    let pairs: Vec<(f32, f32)> = (1..400).map(|i| (i as f32 * 0.173 - 30.0, 0.0)).collect();
    let near = |body: &str, function: fn(f64) -> f64| {
        for (&(a, _), found) in pairs.iter().zip(binary_f32(body, &pairs)) {
            let want = function(f64::from(a)) as f32;
            let close = (f(found) - want).abs() <= want.abs() * f32::EPSILON;
            assert!(close || f(found).is_nan() && want.is_nan(), "{body} of {a}: {}", f(found));
        }
    };
    near("ex2.approx.f32 %f9, %f7;", f64::exp2);
    near("lg2.approx.f32 %f9, %f7;", f64::log2);
    near("sin.approx.f32 %f9, %f7;", f64::sin);
    near("cos.approx.f32 %f9, %f7;", f64::cos);
    near("tanh.approx.f32 %f9, %f7;", f64::tanh);
    near("rcp.approx.f32 %f9, %f7;", f64::recip);
    near("ex2.approx.ftz.f32 %f9, %f7;", f64::exp2);
    near("rcp.approx.ftz.f32 %f9, %f7;", f64::recip);
}

#[test]
fn exponentials_and_logarithms_are_near_on_a_sweep() {
    let mut state = 1;
    let input: Vec<[u32; 1]> =
        (0..200_000).map(|_| [(next_random(&mut state) >> 32) as u32]).collect();
    let body = "mov.b32 %f1, %r10; ex2.approx.f32 %f2, %f1; lg2.approx.f32 %f3, %f1;
        mov.b32 %r20, %f2; mov.b32 %r21, %f3;";
    let found: Vec<[u32; 2]> = sweep(body, &input);
    let near = |found: u32, want: f64| {
        let want = (want as f32).to_bits();
        found == want || found.abs_diff(want) <= 1
    };
    for ([bits], [exponential, logarithm]) in input.into_iter().zip(found) {
        let x = f64::from(f(bits));
        if x.is_nan() {
            assert_eq!([exponential, logarithm], [NAN; 2]);
            continue;
        }
        assert!(near(exponential, x.exp2()), "exp2 of {x:e}: {exponential:#x}");
        let fits = if x < 0.0 { logarithm == NAN } else { near(logarithm, x.log2()) };
        assert!(fits, "log2 of {x:e}: {logarithm:#x}");
    }
}

#[test]
fn edges_of_exponentials_and_logarithms() {
    let run = |body: &str, values: [f32; 3]| {
        let found = binary_f32(body, &values.map(|value| (value, 0.0)));
        [f(found[0]), f(found[1]), f(found[2])]
    };
    let infinity = f32::INFINITY;
    let powers = run("ex2.approx.f32 %f9, %f7;", [-140.0, -infinity, infinity]);
    assert_eq!(powers, [f(1 << 9), 0.0, infinity]);
    let logarithms = run("lg2.approx.f32 %f9, %f7;", [0.0, f(1), 8.0]);
    assert_eq!(logarithms, [-infinity, -149.0, 3.0]);
}

#[test]
fn flushing_approximations_have_no_subnormal_operands_and_results() {
    let subnormal = f32::from_bits(1);
    let pairs = [(-127.0, 0.0), (-126.0, 0.0), (subnormal, 0.0), (f32::NAN, 0.0)];
    let exponentials = [0, f32::MIN_POSITIVE.to_bits(), 1.0f32.to_bits(), 0x7fff_ffff];
    assert_eq!(binary_f32("ex2.approx.ftz.f32 %f9, %f7;", &pairs), exponentials);
    let large = 2.0f32.powi(127);
    let pairs = [(large, 0.0), (-large, 0.0), (large / 2.0, 0.0), (-subnormal, 0.0)];
    let infinity = f32::NEG_INFINITY.to_bits();
    let reciprocals = [0, 0x8000_0000, f32::MIN_POSITIVE.to_bits(), infinity];
    assert_eq!(binary_f32("rcp.approx.ftz.f32 %f9, %f7;", &pairs), reciprocals);
}

#[test]
fn signs_are_bits() {
    let pairs = [(1.0, 0.0), (-0.0, 0.0)];
    assert_eq!(binary_f32("neg.f32 %f9, %f7;", &pairs), [0xbf80_0000, 0]);
    assert_eq!(binary_f32("abs.f32 %f9, %f7;", &pairs), [0x3f80_0000, 0]);
    assert_eq!(binary_f32("copysign.f32 %f9, %f7, %f8;", &[(-1.0, 2.0)]), [0xc000_0000]);
}

#[test]
fn comparisons_are_ordered_or_not() {
    let pairs = [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (f32::NAN, 2.0)];
    let relation = |name: &str| {
        let body =
            format!("setp.{name}.f32 %p1, %f7, %f8; selp.f32 %f9, 0f00000001, 0f00000000, %p1;");
        binary_f32(&body, &pairs)
    };
    assert_eq!(relation("eq"), [0, 1, 0, 0]);
    assert_eq!(relation("ne"), [1, 0, 1, 0]);
    assert_eq!(relation("lt"), [1, 0, 0, 0]);
    assert_eq!(relation("le"), [1, 1, 0, 0]);
    assert_eq!(relation("gt"), [0, 0, 1, 0]);
    assert_eq!(relation("ge"), [0, 1, 1, 0]);
    assert_eq!(relation("equ"), [0, 1, 0, 1]);
    assert_eq!(relation("neu"), [1, 0, 1, 1]);
    assert_eq!(relation("ltu"), [1, 0, 0, 1]);
    assert_eq!(relation("leu"), [1, 1, 0, 1]);
    assert_eq!(relation("gtu"), [0, 0, 1, 1]);
    assert_eq!(relation("geu"), [0, 1, 1, 1]);
    assert_eq!(relation("num"), [1, 1, 1, 0]);
    assert_eq!(relation("nan"), [0, 0, 0, 1]);
}

#[test]
fn properties_are_tested() {
    let class = |name: &str| {
        let body = format!("testp.{name}.f32 %p1, %f7; selp.f32 %f9, 0f00000001, 0f00000000, %p1;");
        binary_f32(&body, &[(1.0, 0.0), (f32::INFINITY, 0.0), (f32::NAN, 0.0), (1e-40, 0.0)])
    };
    assert_eq!(class("finite"), [1, 0, 0, 1]);
    assert_eq!(class("infinite"), [0, 1, 0, 0]);
    assert_eq!(class("notanumber"), [0, 0, 1, 0]);
    assert_eq!(class("subnormal"), [0, 0, 0, 1]);
}

#[test]
fn doubles() {
    let pairs = [(0.1f64.to_bits(), 0.2f64.to_bits()), (f64::NAN.to_bits(), 1.0f64.to_bits())];
    let run = |body: &str| {
        let body = format!("mov.b64 %d7, %rd7; mov.b64 %d8, %rd8; {body} mov.b64 %rd9, %d9;");
        binary_wide(&body, &pairs)
    };
    let nan = f64::NAN.to_bits();
    assert_eq!(run("add.rn.f64 %d9, %d7, %d8;"), [(0.1f64 + 0.2).to_bits(), nan]);
    assert_eq!(run("mul.f64 %d9, %d7, %d8;"), [(0.1f64 * 0.2).to_bits(), nan]);
    assert_eq!(run("div.rn.f64 %d9, %d7, %d8;"), [(0.1f64 / 0.2).to_bits(), nan]);
    let fused = 0.1f64.mul_add(0.2, 0.1).to_bits();
    assert_eq!(run("fma.rn.f64 %d9, %d7, %d8, %d7;"), [fused, nan]);
    assert_eq!(run("sqrt.rn.f64 %d9, %d7;"), [0.1f64.sqrt().to_bits(), nan]);
    assert_eq!(run("min.f64 %d9, %d7, %d8;"), [0.1f64.to_bits(), 1.0f64.to_bits()]);
    let zeros = [(0, 1 << 63), (1 << 63, 0)];
    let body = |name: &str| {
        format!(
            "mov.b64 %d7, %rd7; mov.b64 %d8, %rd8; {name}.f64 %d9, %d7, %d8; mov.b64 %rd9, %d9;"
        )
    };
    assert_eq!(binary_wide(&body("min"), &zeros), [1 << 63; 2]);
    assert_eq!(binary_wide(&body("max"), &zeros), [0; 2]);
    assert_eq!(run("neg.f64 %d9, %d8;"), [(-0.2f64).to_bits(), (-1.0f64).to_bits()]);
}
