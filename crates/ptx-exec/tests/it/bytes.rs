//! Carries, dot products, permutations of bytes, and other rare integer instructions.

use super::{binary, next_random, sweep};

const M: u32 = u32::MAX;

/// Words of edge cases and random ones, in tuples.
fn tuples<const N: usize>() -> Vec<[u32; N]> {
    let edges = [0, 1, 2, M, M - 1, 0x7fff_ffff, 0x8000_0000, 0x80ff_7f01];
    let mut state = 5;
    let mut word = || {
        let random = next_random(&mut state) >> 30;
        if random.is_multiple_of(2) { edges[random as usize / 2 % 8] } else { random as u32 }
    };
    (0..20_000).map(|_| std::array::from_fn(|_| word())).collect()
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(wide: u64) -> [u32; 2] {
    [wide as u32, (wide >> 32) as u32]
}

#[test]
fn carries_and_borrows_pass_through_a_chain() {
    let input = tuples::<4>();
    let run = |first: &str, second: &str, last: &str| -> Vec<[u32; 3]> {
        let body = format!(
            "{first}.cc.u32 %r20, %r10, %r12; {second}.cc.u32 %r21, %r11, %r13;
            {last}.u32 %r22, 0, 0;"
        );
        sweep(&body, &input)
    };
    let sums = run("add", "addc", "addc");
    let differences = run("sub", "subc", "subc");
    for ((input, sum), difference) in input.iter().zip(sums).zip(differences) {
        let (a, b) = (wide(input[0], input[1]), wide(input[2], input[3]));
        let (want, carry) = a.overflowing_add(b);
        assert_eq!(sum, [want as u32, (want >> 32) as u32, carry.into()], "{a:#x} + {b:#x}");
        let (want, borrow) = a.overflowing_sub(b);
        // 0 - 0 - borrow.
        let borrow = if borrow { M } else { 0 };
        assert_eq!(difference, [want as u32, (want >> 32) as u32, borrow], "{a:#x} - {b:#x}");
    }
}

#[test]
fn carries_of_64_bits_and_of_products() {
    let input = tuples::<4>();
    let words = "mov.b64 %rd7, {%r10, %r11}; mov.b64 %rd8, {%r12, %r13};";
    let run = |first: &str, second: &str| -> Vec<[u32; 4]> {
        let body = format!(
            "{words} {first}.cc.u64 %rd9, %rd7, %rd8; {second}.u64 %rd10, 7, 9;
            mov.b64 {{%r20, %r21}}, %rd9; mov.b64 {{%r22, %r23}}, %rd10;"
        );
        sweep(&body, &input)
    };
    let (sums, differences) = (run("add", "addc"), run("sub", "subc"));
    let products: Vec<[u32; 2]> =
        sweep("mad.lo.cc.u32 %r20, %r10, %r11, %r12; madc.hi.u32 %r21, %r10, %r11, %r13;", &input);
    for (index, input) in input.iter().enumerate() {
        let (a, b) = (wide(input[0], input[1]), wide(input[2], input[3]));
        let (sum, carry) = a.overflowing_add(b);
        let want = [halves(sum), halves(16 + u64::from(carry))].concat();
        assert_eq!(sums[index][..], want, "{a:#x} + {b:#x}");
        let (difference, borrow) = a.overflowing_sub(b);
        let want = [halves(difference), halves((-2i64 - i64::from(borrow)) as u64)].concat();
        assert_eq!(differences[index][..], want, "{a:#x} - {b:#x}");
        let product = u64::from(input[0]) * u64::from(input[1]);
        assert_eq!(products[index], halves(product.wrapping_add(b)), "{input:x?}");
    }
}

/// Element `index` of a word of elements of `bits` bits.
fn part(word: u32, index: u32, bits: u32, signed: bool) -> i64 {
    let up = word << (32 - bits - bits * index);
    if signed { i64::from(up.cast_signed() >> (32 - bits)) } else { i64::from(up >> (32 - bits)) }
}

#[test]
fn dot_products() {
    let input = tuples::<3>();
    let check = |body: &str, dot: &dyn Fn(u32, u32) -> i64| {
        let found: Vec<[u32; 1]> = sweep(&format!("{body} %r20, %r10, %r11, %r12;"), &input);
        for (&[a, b, c], [found]) in input.iter().zip(found) {
            let want = (dot(a, b) as u32).wrapping_add(c);
            assert_eq!(found, want, "{body} of {a:#x}, {b:#x}, {c:#x}");
        }
    };
    for (signed, ty) in [([false, false], "u32.u32"), ([true, false], "s32.u32")]
        .into_iter()
        .chain([([false, true], "u32.s32"), ([true, true], "s32.s32")])
    {
        let [a_signed, b_signed] = signed;
        check(&format!("dp4a.{ty}"), &|a, b| {
            (0..4).map(|i| part(a, i, 8, a_signed) * part(b, i, 8, b_signed)).sum()
        });
        for (word, first) in [("lo", 0), ("hi", 2)] {
            check(&format!("dp2a.{word}.{ty}"), &|a, b| {
                let term = |i| part(a, i, 16, a_signed) * part(b, first + i, 8, b_signed);
                (0..2).map(term).sum()
            });
        }
    }
    let distance = |signed| move |a, b| (part(a, 0, 32, signed) - part(b, 0, 32, signed)).abs();
    check("sad.u32", &distance(false));
    check("sad.s32", &distance(true));
    assert_eq!(binary("sad.s32 %r9, %r7, %r8, 10;", &[(1, M)]), [12]);
}

#[test]
fn permutations_follow_their_mode() {
    // The bytes of the result, the highest first, for each selector.
    let modes = [
        ("f4e", [0x3210, 0x4321, 0x5432, 0x6543]),
        ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
        ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
        ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
        ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
        ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
    ];
    for (mode, selections) in modes {
        for (selector, selection) in (0..).zip(selections) {
            let bytes = [0, 4, 8, 12].map(|shift| (selection >> shift & 7) * 0x11);
            let want = u32::from_le_bytes(bytes.map(|byte| byte as u8));
            // Only the two lower bits of the selector count.
            for selector in [selector, selector + 4] {
                let body = format!("prmt.b32.{mode} %r9, %r7, %r8, {selector};");
                let found = binary(&body, &[(0x3322_1100, 0x7766_5544)]);
                assert_eq!(found, [want], "{mode} {selector}");
            }
        }
    }
}

#[test]
fn masks_and_sign_extensions_clamp_or_wrap() {
    let mask = |mode: &str, pair| binary(&format!("bmsk.{mode}.b32 %r9, %r7, %r8;"), &[pair])[0];
    assert_eq!(
        [mask("clamp", (4, 8)), mask("clamp", (40, 8)), mask("clamp", (28, 40))],
        [0xff0, 0, 0xf000_0000]
    );
    assert_eq!([mask("wrap", (33, 1)), mask("wrap", (4, 40))], [2, 0xff0]);
    let extend = |mode: &str, pair| binary(&format!("szext.{mode} %r9, %r7, %r8;"), &[pair])[0];
    assert_eq!(
        [extend("clamp.s32", (0x80, 8)), extend("clamp.s32", (0x7f, 8))],
        [0xffff_ff80, 0x7f]
    );
    assert_eq!([extend("clamp.u32", (0xfff, 8)), extend("clamp.u32", (0xfff, 64))], [0xff, 0xfff]);
    assert_eq!(extend("wrap.u32", (0xfff, 40)), 0xff);
}

#[test]
fn the_nth_set_bit_is_found_in_both_directions() {
    let find = |(mask, base): (u32, u32), offset: i32| {
        binary(&format!("fns.b32 %r9, %r7, %r8, {offset};"), &[(mask, base)])[0]
    };
    assert_eq!([find((0b1010, 0), 2), find((0b1010, 0), 3)], [3, M]);
    assert_eq!([find((0b1010, 2), -1), find((0b1010, 1), 0), find((0b1010, 2), 0)], [1, 1, M]);
}

#[test]
fn packed_integers_have_two_results() {
    let input = tuples::<2>();
    let check = |name: &str, signed: bool, function: &dyn Fn(i64, i64) -> i64| {
        let found: Vec<[u32; 1]> = sweep(&format!("{name} %r20, %r10, %r11;"), &input);
        for (&[a, b], [found]) in input.iter().zip(found) {
            let [low, high] =
                [0, 1].map(|i| function(part(a, i, 16, signed), part(b, i, 16, signed)));
            let want = low as u32 & 0xffff | (high as u32) << 16;
            assert_eq!(found, want, "{name} of {a:#x} and {b:#x}");
        }
    };
    check("add.s16x2", true, &|a, b| a + b);
    check("add.u16x2", false, &|a, b| a + b);
    check("min.s16x2", true, &|a, b| a.min(b));
    check("max.u16x2", false, &|a, b| a.max(b));
    check("max.relu.s16x2", true, &|a, b| a.max(b).max(0));
    check("min.relu.s16x2", true, &|a, b| a.min(b).max(0));
}
