//! Rounding modes, against results of the host and their exact errors.

use std::cmp::Ordering;

use half::{bf16, f16};

use super::{binary_f32, next_random, sweep};

/// The suffixes of the modes: to nearest, towards zero, down, up.
const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// The result in each mode from the result to nearest, its two neighbours, and the order of the
/// exact result relative to it.
fn in_each_mode<T: Copy>([below, near, above]: [T; 3], exact: Ordering, negative: bool) -> [T; 4] {
    let down = if exact == Ordering::Less { below } else { near };
    let up = if exact == Ordering::Greater { above } else { near };
    [near, if negative { up } else { down }, down, up]
}

/// `exact` as an `f32` in each mode.
fn narrowed(exact: f64) -> [u32; 4] {
    let near = exact as f32;
    let order = exact.total_cmp(&f64::from(near));
    let neighbours = [near.next_down(), near, near.next_up()];
    in_each_mode(neighbours, order, exact.is_sign_negative()).map(f32::to_bits)
}

fn halves_of(wide: u64) -> [u32; 2] {
    [wide as u32, (wide >> 32) as u32]
}

/// Repeats `text` for each mode, with `MODE` and the register `OUT` replaced.
fn each_mode(text: &str) -> String {
    let one =
        |(mode, out): (&str, i32)| text.replace("MODE", mode).replace("OUT", &out.to_string());
    MODES.into_iter().zip(20..).map(one).collect()
}

#[test]
fn doubles_narrow_to_singles_in_each_mode() {
    let mut state = 3;
    let input: Vec<[u32; 2]> = (0..200_000)
        .map(|_| {
            let random = next_random(&mut state) ^ state >> 33;
            // Exponents around the range of f32, to cover overflow, subnormals and underflow.
            let exponent = 1023 - 160 + (random >> 20) % 300;
            halves_of(random & 0x800f_ffff_ffff_ffff | exponent << 52)
        })
        .collect();
    let body = each_mode("cvt.MODE.f32.f64 %f1, %d1; mov.b32 %rOUT, %f1; ");
    let found: Vec<[u32; 4]> = sweep(&format!("mov.b64 %d1, {{%r10, %r11}}; {body}"), &input);
    for ([low, high], found) in input.into_iter().zip(found) {
        let value = f64::from_bits(u64::from(low) | u64::from(high) << 32);
        assert_eq!(found, narrowed(value), "{value:e}");
    }
}

#[test]
fn singles_round_quotients_roots_and_fused_products_in_each_mode() {
    let mut state = 11;
    let mut next = || {
        let random = next_random(&mut state) >> 16;
        // Short mantissas and similar exponents, so a fused result is exact in f64.
        (random as u32 & 0x807f_f800 | (120 + (random >> 40) as u32 % 14) << 23, random)
    };
    let input: Vec<[u32; 3]> = (0..20_000)
        .map(|_| {
            let ((a, more), (b, _), (c, _)) = (next(), next(), next());
            [if more & 1 == 0 { a } else { a & 0x7fff_ffff }, b, c]
        })
        .collect();
    let load = "mov.b32 %f1, %r10; mov.b32 %f2, %r11; mov.b32 %f3, %r12;";
    let check = |operation: &str, function: fn([f64; 3]) -> f64| {
        let body = each_mode(&format!("{operation}; mov.b32 %rOUT, %f4; "));
        let found: Vec<[u32; 4]> = sweep(&format!("{load} {body}"), &input);
        for (&values, found) in input.iter().zip(found) {
            // A quotient or root that is not an f32 differs from one by more than the error of f64.
            let exact = function(values.map(|bits| f64::from(f32::from_bits(bits))));
            let want = match exact {
                _ if exact.is_nan() => [0x7fff_ffff; 4],
                // The sum of two opposite numbers.
                0.0 => [0, 0, 0x8000_0000, 0],
                _ => narrowed(exact),
            };
            assert_eq!(found, want, "{operation} of {values:x?}");
        }
    };
    check("add.MODE.f32 %f4, %f1, %f2", |[a, b, _]| a + b);
    check("sub.MODE.f32 %f4, %f1, %f2", |[a, b, _]| a - b);
    check("mul.MODE.f32 %f4, %f1, %f2", |[a, b, _]| a * b);
    check("fma.MODE.f32 %f4, %f1, %f2, %f3", |[a, b, c]| a * b + c);
    check("div.MODE.f32 %f4, %f1, %f2", |[a, b, _]| a / b);
    check("rcp.MODE.f32 %f4, %f1", |[a, ..]| 1.0 / a);
    check("sqrt.MODE.f32 %f4, %f1", |[a, ..]| a.sqrt());
}

#[test]
fn edges_of_directed_singles() {
    let run = |name: &str, pair| {
        f32::from_bits(binary_f32(&format!("{name}.f32 %f9, %f7, %f8;"), &[pair])[0])
    };
    assert_eq!(run("add.rp", (1.0, 1e-30)), 1.0f32.next_up());
    assert_eq!(run("add.rz", (1.0, -1e-30)), 1.0f32.next_down());
    assert_eq!(run("add.rm", (1.0, -1.0)).to_bits(), (-0.0f32).to_bits());
    assert_eq!(run("add.rm", (0.0, 0.0)).to_bits(), 0);
    assert_eq!(run("add.rz", (f32::MAX, f32::MAX)), f32::MAX);
    assert_eq!(run("add.rp", (f32::MAX, f32::MAX)), f32::INFINITY);
    let tiny = f32::from_bits(1);
    assert_eq!(run("mul.rp", (tiny, tiny)), tiny);
    assert_eq!(run("mul.rm", (tiny, tiny)).to_bits(), 0);
    assert_eq!(run("mul.rm", (tiny, -tiny)), -tiny);
    assert_eq!(run("div.rp", (tiny, f32::INFINITY)).to_bits(), 0);
    assert_eq!(run("div.rm", (1.0, 0.0)), f32::INFINITY);
    let root = |mode: &str, value| {
        f32::from_bits(binary_f32(&format!("sqrt.{mode}.f32 %f9, %f7;"), &[(value, 0.0)])[0])
    };
    assert_eq!([root("rp", 4.0), root("rm", 4.0)], [2.0; 2]);
    assert_eq!(root("rm", 2.0).next_up(), root("rp", 2.0));
}

/// The results of a function of doubles in each mode. The operands are in `%d1` to `%d3`, and the
/// result is in `%d4`.
fn doubles(operation: &str, input: &[[f64; 3]]) -> Vec<[f64; 4]> {
    let words: Vec<[u32; 6]> = input
        .iter()
        .map(|values| {
            let [a, b, c] = values.map(|value| halves_of(value.to_bits()));
            [a[0], a[1], b[0], b[1], c[0], c[1]]
        })
        .collect();
    let one = |(mode, out): (&str, usize)| {
        let operation = operation.replace("MODE", mode);
        format!("{operation}; mov.b64 {{%r{out}, %r{}}}, %d4; ", out + 1)
    };
    let body: String = MODES.into_iter().zip((20..).step_by(2)).map(one).collect();
    let load = "mov.b64 %d1, {%r10, %r11}; mov.b64 %d2, {%r12, %r13};
        mov.b64 %d3, {%r14, %r15};";
    let out: Vec<[u32; 8]> = sweep(&format!("{load} {body}"), &words);
    let wide = |pair: &[u32]| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32);
    out.iter().map(|out| std::array::from_fn(|mode| wide(&out[2 * mode..]))).collect()
}

/// A function of doubles.
struct Function {
    operation: &'static str,
    near: fn([f64; 3]) -> f64,
    /// The order of the exact result relative to the rounded one, if the error can be computed.
    error: fn([f64; 3], f64) -> Option<Ordering>,
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let rest = sum - a;
    (sum, (a - (sum - rest)) + (b - rest))
}

fn sign(error: f64) -> Option<Ordering> {
    error.partial_cmp(&0.0)
}

const FUNCTIONS: [Function; 6] = [
    Function {
        operation: "add.MODE.f64 %d4, %d1, %d2",
        near: |[a, b, _]| a + b,
        error: |[a, b, _], _| sign(two_sum(a, b).1),
    },
    Function {
        operation: "mul.MODE.f64 %d4, %d1, %d2",
        near: |[a, b, _]| a * b,
        error: |[a, b, _], near| sign(a.mul_add(b, -near)),
    },
    Function {
        operation: "fma.MODE.f64 %d4, %d1, %d2, %d3",
        near: |[a, b, c]| a.mul_add(b, c),
        error: |[a, b, c], near| {
            let product = a * b;
            let (sum, error) = two_sum(product, c);
            let (coarse, fine) = (sum - near, error + a.mul_add(b, -product));
            let cancels = coarse == -fine && fine != 0.0;
            if cancels { None } else { sign(coarse + fine) }
        },
    },
    Function {
        operation: "div.MODE.f64 %d4, %d1, %d2",
        near: |[a, b, _]| a / b,
        error: |[a, b, _], near| sign((-near).mul_add(b, a) * b.signum()),
    },
    Function {
        operation: "rcp.MODE.f64 %d4, %d1",
        near: |[a, ..]| 1.0 / a,
        error: |[a, ..], near| sign((-near).mul_add(a, 1.0) * a.signum()),
    },
    Function {
        operation: "sqrt.MODE.f64 %d4, %d1",
        near: |[a, ..]| a.sqrt(),
        error: |[a, ..], near| sign((-near).mul_add(near, a)),
    },
];

#[test]
fn doubles_are_rounded_in_each_mode() {
    let mut state = 7;
    let mut next = || {
        let random = next_random(&mut state) ^ state >> 29;
        // Mostly ordinary exponents, sometimes any.
        let exponent = if random.is_multiple_of(5) {
            random >> 20 & 0x7fe
        } else {
            1000 + (random >> 20 & 31)
        };
        f64::from_bits(random & 0x800f_ffff_ffff_ffff | exponent << 52)
    };
    let input: Vec<[f64; 3]> = (0..20_000).map(|_| [next(), next(), next()]).collect();
    for Function { operation, near, error } in FUNCTIONS {
        let mut known = 0;
        for (&values, found) in input.iter().zip(doubles(operation, &input)) {
            let near = near(values);
            if near.is_nan() {
                assert!(found.iter().all(|value| value.is_nan()), "{operation} of {values:?}");
                continue;
            }
            // Errors of numbers far from overflow and underflow are exact.
            let is_ordinary = |value: &f64| (1e-100..1e100).contains(&value.abs());
            let ordinary = values.iter().chain([&near]).all(is_ordinary);
            let order = if ordinary { error(values, near) } else { None };
            if let Some(order) = order {
                let neighbours = [near.next_down(), near, near.next_up()];
                let want = in_each_mode(neighbours, order, near.is_sign_negative());
                assert_eq!(found, want, "{operation} of {values:?}");
                known += 1;
                continue;
            }
            let [nearest, zero, down, up] = found;
            assert_eq!(nearest.to_bits(), near.to_bits(), "{operation} of {values:?}");
            assert!(near == down || near == up, "{operation} of {values:?} {down:e} {up:e}");
            let adjacent = down == up || down.next_up() == up || near.is_infinite();
            assert!(adjacent, "{operation} of {values:?} {down:e} {up:e}");
            let towards_zero = if near.is_sign_negative() { up } else { down };
            assert_eq!(zero, towards_zero, "{operation} of {values:?}");
        }
        assert!(known > 5000, "{operation} has {known} results with known errors");
    }
}

#[test]
fn exact_doubles_are_the_same_in_each_mode() {
    let run = |operation: &str, values| doubles(operation, &[values])[0];
    let [add, mul, fma, div, _, sqrt] = FUNCTIONS.map(|function| function.operation);
    assert_eq!(run(add, [1.5, 2.25, 0.0]), [3.75; 4]);
    assert_eq!(run(mul, [1.5, -2.0, 0.0]), [-3.0; 4]);
    assert_eq!(run(fma, [3.0, 7.0, -1.0]), [20.0; 4]);
    assert_eq!(run(div, [1.0, 8.0, 0.0]), [0.125; 4]);
    assert_eq!(run(sqrt, [2.25, 0.0, 0.0]), [1.5; 4]);
}

#[test]
fn edges_of_directed_doubles() {
    let run = |operation: &str, values| doubles(operation, &[values])[0];
    let [add, mul, fma, div, ..] = FUNCTIONS.map(|function| function.operation);
    let subnormal = f64::from_bits;
    // Errors of subnormal results: 1.5 units, and far less than one.
    let tie = run(mul, [subnormal(3), 0.5, 0.0]);
    assert_eq!(tie, [2, 1, 1, 2].map(subnormal));
    assert_eq!(run(mul, [1e-200, 1e-200, 0.0]), [0, 0, 0, 1].map(subnormal));
    let above = 1.0f64.next_up();
    assert_eq!(run(fma, [1e-200, 1e-200, 1.0]), [1.0, 1.0, 1.0, above]);
    let [_, _, down, up] = run(div, [1.0, 3.0, 0.0]);
    assert_eq!(down.next_up(), up);
    let (most, infinity) = (f64::MAX, f64::INFINITY);
    assert_eq!(run(add, [most, most, 0.0]), [infinity, most, most, infinity]);
    let zeros = run(add, [1.0, -1.0, 0.0]).map(f64::to_bits);
    assert_eq!(zeros, [0, 0, 1 << 63, 0]);
}

#[test]
fn every_half_converts_to_a_single_and_back() {
    let input: Vec<[u32; 1]> = (0..=0xffff).map(|bits| [bits]).collect();
    let run = |ty: &str| -> Vec<[u32; 2]> {
        let body = format!(
            "cvt.u16.u32 %h1, %r10; cvt.f32.{ty} %f1, %h1; mov.b32 %r20, %f1;
            cvt.rn.{ty}.f32 %h2, %f1; cvt.u32.u16 %r21, %h2;"
        );
        sweep(&body, &input)
    };
    let singles: [fn(u16) -> f32; 2] =
        [|bits| f16::from_bits(bits).to_f32(), |bits| bf16::from_bits(bits).to_f32()];
    for (ty, single) in ["f16", "bf16"].into_iter().zip(singles) {
        for (bits, [wide, back]) in (0..=0xffff).zip(run(ty)) {
            let value = single(bits);
            if value.is_nan() {
                assert!(f32::from_bits(wide).is_nan(), "{ty} {bits:#x}");
                assert_eq!(back, 0x7fff, "{ty} {bits:#x}");
            } else {
                assert_eq!([wide, back], [value.to_bits(), bits.into()], "{ty} {bits:#x}");
            }
        }
    }
}

#[test]
fn singles_narrow_to_halves() {
    let mut state = 23;
    let mut input: Vec<[u32; 1]> = (0..100_000)
        .map(|_| {
            let random = (next_random(&mut state) >> 32) as u32;
            // Exponents around the range of f16; many results are ties.
            let exponent = 127 - 28 + (random >> 8) % 48;
            let ties = if random & 1 == 0 { 0x807f_f000 } else { 0x807f_ffff };
            [random & ties | exponent << 23]
        })
        .collect();
    input.extend([65519.0, 65520.0, -65520.0].map(|value: f32| [value.to_bits()]));
    let body =
        each_mode("cvt.MODE.f16.f32 %h1, %f1; cvt.u32.u16 %rOUT, %h1; cvt.f32.f16 %f2, %h1; ");
    let body = body.replace("cvt.rm.f16", "cvt.rn.f16").replace("cvt.rp.f16", "cvt.rz.f16");
    let found: Vec<[u32; 4]> = sweep(&format!("mov.b32 %f1, %r10; {body}"), &input);
    for ([bits], found) in input.into_iter().zip(found) {
        let value = f32::from_bits(bits);
        let near = f16::from_f32(value);
        // One less in magnitude if the nearest is beyond the value.
        let beyond = near.to_f32().abs() > value.abs();
        let zero = near.to_bits() - u16::from(beyond);
        let want = [near.to_bits(), zero, near.to_bits(), zero].map(u32::from);
        assert_eq!(found, want, "{value:e}");
    }
}
