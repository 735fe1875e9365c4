//! Integers and bits.

use super::{binary, binary_wide};

const M: u32 = u32::MAX;

#[test]
fn sums_wrap_and_saturate_only_with_sat() {
    let pairs = [(M, 1), (5, 7), (0x7fff_ffff, 1), (0x8000_0000, M)];
    assert_eq!(binary("add.u32 %r9, %r7, %r8;", &pairs), [0, 12, 0x8000_0000, 0x7fff_ffff]);
    let saturated = [0, 12, 0x7fff_ffff, 0x8000_0000];
    assert_eq!(binary("add.sat.s32 %r9, %r7, %r8;", &pairs), saturated);
    assert_eq!(binary("sub.u32 %r9, %r7, %r8;", &[(0, 1), (7, 5)]), [M, 2]);
    assert_eq!(binary("neg.s32 %r9, %r7;", &[(1, 0), (0x8000_0000, 0)]), [M, 0x8000_0000]);
    assert_eq!(binary("abs.s32 %r9, %r7;", &[(M, 0), (0x8000_0000, 0)]), [1, 0x8000_0000]);
}

#[test]
fn products_have_a_lower_an_upper_and_a_wide_form() {
    let pairs = [(M, M), (0x8000_0000, 2), (3, 4)];
    assert_eq!(binary("mul.lo.u32 %r9, %r7, %r8;", &pairs), [1, 0, 12]);
    assert_eq!(binary("mul.hi.u32 %r9, %r7, %r8;", &pairs), [M - 1, 1, 0]);
    assert_eq!(binary("mul.hi.s32 %r9, %r7, %r8;", &pairs), [0, M, 0]);
    assert_eq!(binary("mad.lo.s32 %r9, %r7, %r8, %r7;", &pairs), [0, 0x8000_0000, 15]);
    let wide = "cvt.u32.u64 %r5, %rd7; cvt.u32.u64 %r6, %rd8;";
    let minus_two = u64::from(M - 1);
    let signed = binary_wide(&format!("{wide} mul.wide.s32 %rd9, %r5, %r6;"), &[(minus_two, 3)]);
    assert_eq!(signed, [(-6i64) as u64]);
    let unsigned =
        binary_wide(&format!("{wide} mad.wide.u32 %rd9, %r5, %r6, %rd8;"), &[(minus_two, 3)]);
    assert_eq!(unsigned, [minus_two * 3 + 3]);
}

#[test]
fn quotients_and_remainders() {
    let pairs = [(17, 5), ((-17i32) as u32, 5), (1, 0), (M, 0x8000_0000)];
    assert_eq!(binary("div.u32 %r9, %r7, %r8;", &pairs), [3, (M - 16) / 5, M, 1]);
    assert_eq!(binary("rem.u32 %r9, %r7, %r8;", &pairs), [2, (M - 16) % 5, M, 0x7fff_ffff]);
    assert_eq!(binary("div.s32 %r9, %r7, %r8;", &pairs[..2]), [3, (-3i32) as u32]);
    assert_eq!(binary("rem.s32 %r9, %r7, %r8;", &pairs[..2]), [2, (-2i32) as u32]);
    assert_eq!(binary_wide("div.u64 %rd9, %rd7, %rd8;", &[(1 << 40, 3)]), [(1 << 40) / 3]);
}

#[test]
fn shifts_clamp_their_amount() {
    let pairs = [(0x8000_0001, 1), (0x8000_0001, 31), (0x8000_0001, 32), (0x8000_0001, M)];
    assert_eq!(binary("shl.b32 %r9, %r7, %r8;", &pairs), [2, 0x8000_0000, 0, 0]);
    assert_eq!(binary("shr.u32 %r9, %r7, %r8;", &pairs), [0x4000_0000, 1, 0, 0]);
    assert_eq!(binary("shr.s32 %r9, %r7, %r8;", &pairs), [0xc000_0000, M, M, M]);
    let wide = "cvt.u32.u64 %r5, %rd8;";
    let shifted = binary_wide(&format!("{wide} shl.b64 %rd9, %rd7, %r5;"), &[(3, 62), (3, 64)]);
    assert_eq!(shifted, [3 << 62, 0]);
    let shifted = binary_wide(&format!("{wide} shr.s64 %rd9, %rd7, %r5;"), &[(1 << 63, 99)]);
    assert_eq!(shifted, [u64::MAX]);
    assert_eq!(binary("shf.l.wrap.b32 %r9, %r7, %r8, 4;", &[(0xf000_0000, 1)]), [0x1f]);
}

#[test]
fn wide_and_narrow_products() {
    let all = u64::MAX;
    assert_eq!(binary_wide("mul.hi.u64 %rd9, %rd7, %rd8;", &[(all, all)]), [all - 1]);
    assert_eq!(binary_wide("mul.lo.u64 %rd9, %rd7, %rd8;", &[(all, all)]), [1]);
    let narrow = "cvt.u32.u64 %r5, %rd7; cvt.u32.u64 %r6, %rd8;";
    let body = format!("{narrow} mad.wide.s32 %rd9, %r5, %r6, 2;");
    assert_eq!(binary_wide(&body, &[(u64::from(M), 5)]), [(-3i64) as u64]);
    let body = "cvt.u16.u32 %h1, %r7; cvt.u16.u32 %h2, %r8; mul.wide.u16 %r9, %h1, %h2;";
    assert_eq!(binary(body, &[(0xffff, 0xffff)]), [0xfffe_0001]);
    // The factors are the lower 24 bits, here minus one.
    let pair = [(0x12ff_ffff, 2)];
    assert_eq!(binary("mul24.lo.s32 %r9, %r7, %r8;", &pair), [M - 1]);
    assert_eq!(binary("mad24.lo.s32 %r9, %r7, %r8, 5;", &pair), [3]);
}

#[test]
fn funnel_shifts_clamp_or_wrap_their_amount() {
    let run = |instruction: &str, pair| binary(&format!("{instruction};"), &[pair])[0];
    assert_eq!(run("shf.l.wrap.b32 %r9, %r7, %r8, 1", (0x8000_0000, 1)), 3);
    assert_eq!(run("shf.l.wrap.b32 %r9, %r7, %r8, 33", (0x8000_0000, 1)), 3);
    assert_eq!(run("shf.l.clamp.b32 %r9, %r7, %r8, 40", (7, 1)), 7);
    assert_eq!(run("shf.r.wrap.b32 %r9, %r7, %r8, 1", (0, 1)), 0x8000_0000);
    assert_eq!(run("shf.r.wrap.b32 %r9, %r7, %r8, 33", (0, 1)), 0x8000_0000);
    assert_eq!(run("shf.r.clamp.b32 %r9, %r7, %r8, 40", (7, 1)), 1);
}

#[test]
fn division_by_zero_gives_all_ones() {
    assert_eq!(binary("div.u32 %r9, %r7, %r8;", &[(7, 0)]), [M]);
    assert_eq!(binary("rem.u32 %r9, %r7, %r8;", &[(7, 0)]), [M]);
    assert_eq!(binary("div.s32 %r9, %r7, %r8;", &[(0x8000_0000, M)]), [0x8000_0000]);
    let seven = (-7i64) as u64;
    assert_eq!(binary_wide("div.s64 %rd9, %rd7, %rd8;", &[(seven, 2)]), [(-3i64) as u64]);
}

#[test]
fn bit_fields_end_at_the_word() {
    let field = |ty: &str, (word, start, bits): (u32, u32, u32)| {
        binary(&format!("bfe.{ty} %r9, %r7, {start}, %r8;"), &[(word, bits)])[0]
    };
    assert_eq!(field("u32", (0x1234_5678, 8, 8)), 0x56);
    assert_eq!(field("s32", (0x0000_8000, 8, 8)), 0xffff_ff80);
    assert_eq!(field("u32", (0xf000_0000, 28, 8)), 0xf);
    assert_eq!(field("s32", (0xf000_0000, 28, 8)), M);
    assert_eq!(field("s32", (0x8000_0000, 40, 4)), M);
    assert_eq!(binary("bfi.b32 %r9, %r7, %r8, 4, 8;", &[(0xff, 0)]), [0xff0]);
    assert_eq!(binary("bfi.b32 %r9, %r7, %r8, 28, 8;", &[(0xff, 0x1_0000)]), [0xf001_0000]);
}

#[test]
fn positions_and_counts_of_bits() {
    assert_eq!(binary("bfind.s32 %r9, %r7;", &[(M, 0), (M - 1, 0)]), [M, 0]);
    assert_eq!(binary("bfind.shiftamt.u32 %r9, %r7;", &[(0x100, 0), (0, 0)]), [23, M]);
    assert_eq!(binary("clz.b32 %r9, %r7;", &[(1, 0), (0, 0)]), [31, 32]);
    let wide = |name: &str| {
        let body = format!("{name}.b64 %r5, %rd7; cvt.u64.u32 %rd9, %r5;");
        binary_wide(&body, &[(0, 0), (u64::MAX, 0), (1 << 40, 0)])
    };
    assert_eq!(wide("clz"), [64, 0, 23]);
    assert_eq!(wide("popc"), [0, 64, 1]);
}

#[test]
fn truth_tables_and_byte_selections() {
    let (a, b, c) = (0xf0f0_1234u32, 0xcccc_5678, 0xaaaa_9abcu32);
    let table =
        |table: u32| binary(&format!("lop3.b32 %r9, %r7, %r8, {c:#x}, {table:#x};"), &[(a, b)])[0];
    assert_eq!(table(0x96), a ^ b ^ c);
    assert_eq!(table(0xe8), a & b | a & c | b & c);
    assert_eq!(table(0x40), a & b & !c);
    let pair = [(0x3322_1100, 0x7766_5544)];
    assert_eq!(binary("prmt.b32 %r9, %r7, %r8, 0x7650;", &pair), [0x7766_5500]);
    // The upper bit of a selector replicates the sign.
    assert_eq!(binary("prmt.b32 %r9, %r7, %r8, 0x9999;", &[(0x8000, 0)]), [M]);
    assert_eq!(binary("prmt.b32 %r9, %r7, %r8, 0x8888;", &[(0x8000, 0)]), [0]);
}

#[test]
fn extremes_follow_the_sign() {
    let pairs = [(M, 1)];
    assert_eq!(binary("min.u32 %r9, %r7, %r8;", &pairs), [1]);
    assert_eq!(binary("min.s32 %r9, %r7, %r8;", &pairs), [M]);
    assert_eq!(binary("max.u32 %r9, %r7, %r8;", &pairs), [M]);
    assert_eq!(binary("max.s32 %r9, %r7, %r8;", &pairs), [1]);
    assert_eq!(binary_wide("max.s64 %rd9, %rd7, %rd8;", &[(u64::MAX, 1)]), [1]);
}

#[test]
fn logic_fields_and_counts() {
    let pair = [(0xff00_ff00, 0x0ff0_0ff0)];
    assert_eq!(binary("and.b32 %r9, %r7, %r8;", &pair), [0x0f00_0f00]);
    assert_eq!(binary("or.b32 %r9, %r7, %r8;", &pair), [0xfff0_fff0]);
    assert_eq!(binary("xor.b32 %r9, %r7, %r8;", &pair), [0xf0f0_f0f0]);
    assert_eq!(binary("not.b32 %r9, %r7;", &pair), [0x00ff_00ff]);
    assert_eq!(binary("cnot.b32 %r9, %r7;", &[(0, 0), (9, 0)]), [1, 0]);
    assert_eq!(binary("lop3.b32 %r9, %r7, %r8, %r7, 0x3c;", &pair), [0xf0f0_f0f0]);
    assert_eq!(binary("bfe.u32 %r9, %r7, 8, 8;", &pair), [0xff]);
    assert_eq!(binary("bfe.s32 %r9, %r7, 8, 8;", &pair), [M]);
    assert_eq!(binary("bfi.b32 %r9, %r7, %r8, 16, 8;", &[(0xab, 0x1111_1111)]), [0x11ab_1111]);
    assert_eq!(binary("popc.b32 %r9, %r7;", &pair), [16]);
    assert_eq!(binary("clz.b32 %r9, %r8;", &pair), [4]);
    assert_eq!(binary("brev.b32 %r9, %r7;", &[(1, 0)]), [0x8000_0000]);
    assert_eq!(binary("bfind.u32 %r9, %r7;", &[(0x100, 0), (0, 0)]), [8, M]);
    assert_eq!(binary("prmt.b32 %r9, %r7, %r8, 0x5410;", &[(0x2211, 0x4433)]), [0x4433_2211]);
}

#[test]
fn narrow_integers_ignore_upper_bits() {
    let body = "cvt.u16.u32 %h1, %r7; cvt.u16.u32 %h2, %r8; add.u16 %h3, %h1, %h2;
        cvt.u32.u16 %r9, %h3;";
    assert_eq!(binary(body, &[(0x1_ffff, 2), (5, 6)]), [1, 11]);
    let body = "cvt.s16.s32 %h1, %r7; shr.s16 %h3, %h1, 4; cvt.s32.s16 %r9, %h3;";
    assert_eq!(binary(body, &[(0x8000, 0)]), [0xffff_f800]);
    let body = "cvt.u16.u32 %h1, %r7; shr.u16 %h3, %h1, 15; cvt.u32.u16 %r9, %h3;";
    assert_eq!(binary(body, &[(0x8000, 0)]), [1]);
}

#[test]
fn predicates_combine_and_select() {
    let body = "setp.lt.u32 %p1, %r7, %r8;
        setp.eq.and.u32 %p2|%p3, %r7, 5, !%p1;
        selp.b32 %r5, 1, 0, %p2;
        selp.b32 %r6, 2, 0, %p3;
        xor.pred %p4, %p1, %p2;
        @%p4 or.b32 %r5, %r5, 4;
        or.b32 %r9, %r5, %r6;";
    // p1 = a < b; p2 = a == 5 && !p1; p3 = a != 5 && !p1; p4 = p1 ^ p2.
    let pairs = [(5, 3), (5, 9), (6, 3)];
    assert_eq!(binary(body, &pairs), [1 | 4, 4, 2]);
    let signs = [(M, 7), (1, 7)];
    assert_eq!(binary("slct.b32.s32 %r9, %r8, 9, %r7;", &signs), [9, 7]);
    assert_eq!(binary("set.lt.u32.s32 %r9, %r7, %r8;", &signs), [M, M]);
    assert_eq!(
        binary("set.lt.f32.u32 %f1, %r7, %r8; mov.b32 %r9, %f1;", &signs),
        [0, 1.0f32.to_bits()]
    );
}

#[test]
fn comparisons_of_integers() {
    let relation = |name: &str| {
        let body = format!("setp.{name} %p1, %r7, %r8; selp.u32 %r9, 1, 0, %p1;");
        binary(&body, &[(1, 2), (2, 2), (M, 2)])
    };
    assert_eq!(relation("eq.u32"), [0, 1, 0]);
    assert_eq!(relation("ne.s32"), [1, 0, 1]);
    assert_eq!(relation("lt.u32"), [1, 0, 0]);
    assert_eq!(relation("lt.s32"), [1, 0, 1]);
    assert_eq!(relation("le.s32"), [1, 1, 1]);
    assert_eq!(relation("gt.u32"), [0, 0, 1]);
    assert_eq!(relation("ge.s32"), [0, 1, 0]);
    assert_eq!(relation("hs.u32"), [0, 1, 1]);
    assert_eq!(relation("lo.u32"), [1, 0, 0]);
}
