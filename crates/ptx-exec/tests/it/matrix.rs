//! Matrices of a warp, against products of integers. The fragment layouts here follow the PTX
//! manual for each shape, independently of the executor's formula.

use half::{bf16, f16};
use retrograph_ptx_exec::FaultKind;

use super::{bytes_of, decode, fault_of, kernel, kernel_with, run_text, sweep, words};

/// Row and column of element `i` of a lane.
type Layout = fn(lane: usize, i: usize) -> (usize, usize);

struct Shape {
    name: &'static str,
    size: (usize, usize, usize),
    /// Elements of a, b and c that a lane holds.
    counts: [usize; 3],
    layouts: [Layout; 3],
}

fn c_layout(lane: usize, i: usize) -> (usize, usize) {
    (if i < 2 { lane / 4 } else { lane / 4 + 8 }, lane % 4 * 2 + (i & 1))
}

/// A with 16-bit elements: pairs go down first, then to the right.
fn a_pairs(lane: usize, i: usize) -> (usize, usize) {
    let low = i < 2 || (4..6).contains(&i);
    let column = lane % 4 * 2 + (i & 1);
    (if low { lane / 4 } else { lane / 4 + 8 }, if i >= 4 { column + 8 } else { column })
}

fn b_pairs(lane: usize, i: usize) -> (usize, usize) {
    (lane % 4 * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, lane / 4)
}

fn a_single(lane: usize, i: usize) -> (usize, usize) {
    let row = if i.is_multiple_of(2) { lane / 4 } else { lane / 4 + 8 };
    (row, if i >= 2 { lane % 4 + 4 } else { lane % 4 })
}

fn b_single(lane: usize, i: usize) -> (usize, usize) {
    (lane % 4 + 4 * i, lane / 4)
}

fn a_bytes(lane: usize, i: usize) -> (usize, usize) {
    let low = i < 4 || (8..12).contains(&i);
    let column = lane % 4 * 4 + (i & 3);
    (if low { lane / 4 } else { lane / 4 + 8 }, if i >= 8 { column + 16 } else { column })
}

fn b_bytes(lane: usize, i: usize) -> (usize, usize) {
    (lane % 4 * 4 + (i & 3) + if i >= 4 { 16 } else { 0 }, lane / 4)
}

const HALF_8: Shape = Shape {
    name: "m16n8k8",
    size: (16, 8, 8),
    counts: [4, 2, 4],
    layouts: [a_pairs, b_pairs, c_layout],
};
const HALF_16: Shape = Shape { name: "m16n8k16", size: (16, 8, 16), counts: [8, 4, 4], ..HALF_8 };
const TF32_4: Shape = Shape {
    name: "m16n8k4",
    size: (16, 8, 4),
    counts: [2, 1, 4],
    layouts: [a_single, b_single, c_layout],
};
const TF32_8: Shape = Shape { name: "m16n8k8", size: (16, 8, 8), counts: [4, 2, 4], ..TF32_4 };
const BYTE_16: Shape = Shape {
    name: "m16n8k16",
    size: (16, 8, 16),
    counts: [8, 4, 4],
    layouts: [a_bytes, b_bytes, c_layout],
};
const BYTE_32: Shape = Shape { name: "m16n8k32", size: (16, 8, 32), counts: [16, 8, 4], ..BYTE_16 };
const BYTE_8: Shape = Shape { name: "m8n8k16", size: (8, 8, 16), counts: [4, 4, 2], ..BYTE_16 };

/// Bits of an element, and elements of one word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F16,
    Bf16,
    F32,
    Byte,
    Word,
}

impl Kind {
    fn of(ty: &str) -> Self {
        match ty {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "f32" | "tf32" => Self::F32,
            "s8" | "u8" => Self::Byte,
            _ => Self::Word,
        }
    }

    fn parts(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Byte => 4,
            _ => 1,
        }
    }

    fn encode(self, value: i64) -> u32 {
        match self {
            Self::F16 => f16::from_f64(value as f64).to_bits().into(),
            Self::Bf16 => bf16::from_f64(value as f64).to_bits().into(),
            Self::F32 => (value as f32).to_bits(),
            Self::Byte => value as u32 & 0xff,
            Self::Word => value as u32,
        }
    }
}

/// The registers of a lane, as words.
fn fragment(kind: Kind, layout: Layout, lane: usize, count: usize, of: &Numbers) -> Vec<u32> {
    let bits = 32 / kind.parts();
    let mut list = vec![0u32; count.div_ceil(kind.parts())];
    for i in 0..count {
        let (row, column) = layout(lane, i);
        list[i / kind.parts()] |= kind.encode(of(row, column)) << (bits * (i % kind.parts()));
    }
    list
}

type Numbers = dyn Fn(usize, usize) -> i64;

fn a_of(row: usize, column: usize) -> i64 {
    (row * 7 + column * 3) as i64 % 11 - 4
}

fn b_of(row: usize, column: usize) -> i64 {
    (row * 5 + column * 2 + row * column) as i64 % 9 - 3
}

fn c_of(row: usize, column: usize) -> i64 {
    (row * 3 + column) as i64 - 20
}

fn list(first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|n| format!("%r{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// The text of a kernel in which each lane loads its fragments, multiplies and stores d.
fn product_text(instruction: &str, counts: [usize; 4]) -> String {
    let [d, a, b, c] = counts;
    let mut body =
        "mad.wide.u32 %rd7, %r0, 128, %rd2; mad.wide.u32 %rd8, %r0, 32, %rd1;".to_owned();
    for n in 0..a + b + c {
        body += &format!("ld.global.b32 %r{}, [%rd7+{}];\n", 10 + n, 4 * n);
    }
    let operands = [list(4, d), list(10, a), list(10 + a, b), list(10 + a + b, c)];
    body += &format!("{instruction} {};\n", operands.join(", "));
    for n in 0..d {
        body += &format!("st.global.b32 [%rd8+{}], %r{};\n", 4 * n, 4 + n);
    }
    kernel(&body)
}

/// Runs `mma` of the types d.a.b.c and compares every element with the integer product.
fn check(shape: &Shape, types: [&str; 4]) {
    let [d, a, b, c] = types.map(Kind::of);
    let words_of = |kind: Kind, count: usize| count.div_ceil(kind.parts());
    let [na, nb, nc] = shape.counts;
    let counts = [words_of(d, nc), words_of(a, na), words_of(b, nb), words_of(c, nc)];
    let name = format!("mma.sync.aligned.{}.row.col.{}", shape.name, types.join("."));
    let mut input = Vec::new();
    for lane in 0..32 {
        let mut line = fragment(a, shape.layouts[0], lane, na, &a_of);
        line.extend(fragment(b, shape.layouts[1], lane, nb, &b_of));
        line.extend(fragment(c, shape.layouts[2], lane, nc, &c_of));
        line.resize(32, 0);
        input.extend(line);
    }
    let out = words(&run_text(&product_text(&name, counts), 32, &bytes_of(&input), 32 * 32));
    let signed = |ty: &str, value: i64| if ty == "u8" { value & 0xff } else { value };
    let sum = move |row: usize, column: usize| {
        let term = |k: usize| signed(types[1], a_of(row, k)) * signed(types[2], b_of(k, column));
        (0..shape.size.2).map(term).sum::<i64>() + c_of(row, column)
    };
    for lane in 0..32 {
        let want: Vec<u32> = {
            let bits = 32 / d.parts();
            let mut list = vec![0u32; words_of(d, nc)];
            for i in 0..nc {
                let (row, column) = shape.layouts[2](lane, i);
                list[i / d.parts()] |= d.encode(sum(row, column)) << (bits * (i % d.parts()));
            }
            list
        };
        assert_eq!(out[8 * lane..][..want.len()], want, "{name}, lane {lane}");
    }
}

#[test]
fn products_of_16_bit_elements() {
    for shape in [HALF_8, HALF_16] {
        check(&shape, ["f32", "f16", "f16", "f32"]);
        check(&shape, ["f16", "f16", "f16", "f16"]);
        check(&shape, ["f32", "bf16", "bf16", "f32"]);
    }
}

#[test]
fn products_of_tf32() {
    check(&TF32_4, ["f32", "tf32", "tf32", "f32"]);
    check(&TF32_8, ["f32", "tf32", "tf32", "f32"]);
}

#[test]
fn products_of_bytes() {
    for shape in [BYTE_8, BYTE_16, BYTE_32] {
        for (a, b) in [("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")] {
            check(&shape, ["s32", a, b, "s32"]);
        }
    }
}

/// m8n8k4, m16n8k4, m16n8k8 and m16n8k16 of doubles: one element in each register.
#[test]
fn products_of_doubles() {
    let sizes = [(8, 4), (16, 4), (16, 8), (16, 16)];
    let roundings = ["", ".rn", ".rz", ".rm", ".rp"];
    let pairs = sizes.iter().flat_map(|&size| roundings.map(|rounding| (size, rounding)));
    for ((m, k), rounding) in pairs {
        let (na, nb, nc) = (m * k / 32, k * 8 / 32, m * 8 / 32);
        let high = m / 8;
        let name = |first: usize, count: usize| {
            let names: Vec<String> = (first..first + count).map(|n| format!("%rd{n}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let mut body =
            "mad.wide.u32 %rd7, %r0, 128, %rd2; mad.wide.u32 %rd8, %r0, 32, %rd1;".to_owned();
        for n in 0..na + nb + nc {
            body += &format!("ld.global.b64 %rd{}, [%rd7+{}];\n", 10 + n, 8 * n);
        }
        body += &format!(
            "mma.sync.aligned.m{m}n8k{k}.row.col{rounding}.f64.f64.f64.f64 {}, {}, {}, {};\n",
            name(30, nc),
            name(10, na),
            name(10 + na, nb),
            name(10 + na + nb, nc)
        );
        for n in 0..nc {
            body += &format!("st.global.b64 [%rd8+{}], %rd{};\n", 8 * n, 30 + n);
        }
        let mut input = Vec::new();
        for lane in 0..32 {
            let mut line: Vec<f64> = Vec::new();
            line.extend(
                (0..na).map(|i| a_of(lane / 4 + 8 * (i % high), lane % 4 + 4 * (i / high)) as f64),
            );
            line.extend((0..nb).map(|i| b_of(lane % 4 + 4 * i, lane / 4) as f64));
            line.extend((0..nc).map(|i| c_of(lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2) as f64));
            line.resize(16, 0.0);
            input.extend(line.into_iter().flat_map(f64::to_le_bytes));
        }
        let out = run_text(&kernel(&body), 32, &input, 32 * 32);
        for lane in 0..32 {
            for i in 0..nc {
                let (row, column) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
                let sum: i64 = (0..k).map(|k| a_of(row, k) * b_of(k, column)).sum();
                let at = 32 * lane + 8 * i;
                let got = f64::from_le_bytes(out[at..at + 8].try_into().unwrap());
                assert_eq!(got, (sum + c_of(row, column)) as f64, "m{m}n8k{k} lane {lane}");
            }
        }
    }
}

#[test]
fn integers_wrap_or_saturate() {
    let run = |word: &str| {
        let body = format!(
            "mov.b32 %r4, 0x7f7f7f7f; mov.b32 %r5, 0x7fffffff;
            mma.sync.aligned.m8n8k16.row.col{word}.s32.s8.s8.s32 {{%r9, %r10}}, {{%r4}}, {{%r4}},
                {{%r5, %r5}};
            st.global.b32 [%rd3], %r9;"
        );
        words(&run_text(&kernel(&body), 32, &[0; 4], 128))[0]
    };
    assert_eq!(run(".satfinite"), 0x7fff_ffff);
    assert_eq!(run(""), 0x7fff_ffffu32.wrapping_add(16 * 127 * 127));
}

#[test]
fn every_finite_half_is_multiplied_exactly() {
    // The product of a and the unit matrix. A lane holds the same elements of a and of d.
    let values: [fn(u16) -> f32; 2] =
        [|bits| f16::from_bits(bits).to_f32(), |bits| bf16::from_bits(bits).to_f32()];
    for ((ty, one), value) in [("f16", 0x3c00), ("bf16", 0x3f80)].into_iter().zip(values) {
        let finite: Vec<u16> = (0..=0xffff).filter(|&bits| value(bits).is_finite()).collect();
        let input: Vec<[u32; 2]> = finite
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&[a, b, c, d]| [[a, b], [c, d]].map(|[a, b]| u32::from(a) | u32::from(b) << 16))
            .collect();
        assert_eq!(4 * input.len(), finite.len());
        let body = format!(
            "mov.u32 %r4, %laneid; shr.u32 %r5, %r4, 2; and.b32 %r4, %r4, 3; shl.b32 %r4, %r4, 1;
            setp.eq.u32 %p1, %r4, %r5; add.u32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, %r5;
            selp.b32 %r4, {one}, 0, %p1; selp.b32 %r5, {}, 0, %p2; or.b32 %r4, %r4, %r5;
            mov.b32 %r6, 0;
            mma.sync.aligned.m16n8k8.row.col.f32.{ty}.{ty}.f32 {{%r20, %r21, %r22, %r23}},
                {{%r10, %r11}}, {{%r4}}, {{%r6, %r6, %r6, %r6}};",
            one << 16,
        );
        let found: Vec<[u32; 4]> = sweep(&body, &input);
        for (&bits, &found) in finite.iter().zip(found.as_flattened()) {
            // The sum of zeros has no sign.
            let want = value(bits) + 0.0;
            assert_eq!(found, want.to_bits(), "{ty} {bits:#x}");
        }
    }
}

#[test]
fn infinities_and_nans_pass_through_a_product() {
    // The first row of a is infinite; b is one except for its first column, which is zero.
    let body = "setp.lt.u32 %p1, %r0, 4;
        selp.b32 %r4, 0x7c007c00, 0x3c003c00, %p1;
        selp.b32 %r5, 0, 0x3c003c00, %p1;
        mov.b32 %r6, 0;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r9, %r10, %r11, %r12}, {%r4, %r4},
            {%r5}, {%r6, %r6, %r6, %r6};
        st.global.b32 [%rd3], %r9; st.global.b32 [%rd3+128], %r10;";
    let out = words(&run_text(&kernel(body), 32, &[0; 4], 256));
    assert_eq!(out[0], 0x7fff_ffff, "infinity times zero");
    assert_eq!(out[32], f32::INFINITY.to_bits());
    assert_eq!(out[4 + 32], 8.0f32.to_bits());
}

/// Shared memory holds rows of 8 16-bit elements, 1, 2, 3 and so on; each lane addresses the row of
/// its index.
const TILE: &str = ".shared .align 16 .b8 tile[1024];";
const FILL: &str = "mov.u32 %r4, tile;
    mad.lo.u32 %r5, %r0, 16, %r4;
    shl.b32 %r6, %r0, 3;
    mad.lo.u32 %r7, %r6, 0x10001, 0x10000;
    add.u32 %r8, %r7, 0x20002; add.u32 %r10, %r7, 0x40004; add.u32 %r11, %r7, 0x60006;
    st.shared.v4.b32 [%r5], {%r7, %r8, %r10, %r11};
    bar.warp.sync -1;";

#[test]
fn matrices_are_loaded_from_rows() {
    let load = |words_of: &str| {
        let body = format!(
            "{FILL} ldmatrix.sync.aligned.m8n8.{words_of}.shared.b16
            {{%r20, %r21, %r22, %r23}}, [%r5];
            mad.wide.u32 %rd7, %r0, 16, %rd1;
            st.global.v4.b32 [%rd7], {{%r20, %r21, %r22, %r23}};"
        );
        words(&run_text(&kernel_with(TILE, &body), 32, &[0; 4], 512))
    };
    let (straight, transposed) = (load("x4"), load("x4.trans"));
    for lane in 0..32 {
        for matrix in 0..4 {
            let at = |row: usize, column: usize| ((matrix * 8 + row) * 8 + column) as u32;
            let (row, column) = (lane / 4, lane % 4 * 2);
            let index = 4 * lane + matrix;
            assert_eq!(straight[index], at(row, column) | at(row, column + 1) << 16);
            assert_eq!(transposed[index], at(column, row) | at(column + 1, row) << 16);
        }
    }
}

#[test]
fn matrices_are_stored_as_rows_and_transposed_in_registers() {
    let body = format!(
        "{FILL} ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r20, %r21}}, [%r5];
        movmatrix.sync.aligned.m8n8.trans.b16 %r22, %r20;
        cvta.shared.u64 %rd8, tile;
        mad.wide.u32 %rd9, %r0, 16, %rd8;
        stmatrix.sync.aligned.m8n8.x2.b16 [%rd9+512], {{%r22, %r21}};
        bar.warp.sync -1;
        ld.shared.v2.b32 {{%r7, %r8}}, [%r5+512];
        stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r5+512], {{%r21}};
        bar.warp.sync -1;
        ld.shared.v2.b32 {{%r10, %r11}}, [%r5+512];
        mad.wide.u32 %rd7, %r0, 16, %rd1;
        st.global.v4.b32 [%rd7], {{%r7, %r8, %r10, %r11}};"
    );
    let out = words(&run_text(&kernel_with(TILE, &body), 32, &[0; 4], 512));
    let pair = |a: usize, b: usize| (a | b << 16) as u32;
    for row in 0..8 {
        let line = &out[4 * row..][..4];
        // The first matrix was transposed twice.
        assert_eq!(line[..2], [pair(8 * row, 8 * row + 1), pair(8 * row + 2, 8 * row + 3)]);
        // The second matrix follows.
        let first = 64 + 8 * row;
        assert_eq!(line[2..], [pair(first, first + 1), pair(first + 2, first + 3)]);
        // The second matrix, transposed.
        let other = &out[4 * (row + 8)..][..2];
        assert_eq!(other, [pair(64 + row, 72 + row), pair(80 + row, 88 + row)]);
    }
}

/// A product by `wmma`, of matrices in memory in the given layouts.
fn wmma(m: usize, n: usize, k: usize, layouts: [&str; 4], types: [&str; 4]) {
    let [d, a, b, c] = types.map(Kind::of);
    let lie = |kind: Kind, (rows, columns): (usize, usize), layout: &str, of: &Numbers| {
        let mut bytes = Vec::new();
        for index in 0..rows * columns {
            let place = match layout {
                "row" => (index / columns, index % columns),
                _ => (index % rows, index / rows),
            };
            let value = kind.encode(of(place.0, place.1)).to_le_bytes();
            bytes.extend_from_slice(&value[..4 / kind.parts()]);
        }
        bytes.resize(2048, 0);
        bytes
    };
    let input = [
        lie(a, (m, k), layouts[0], &a_of),
        lie(b, (k, n), layouts[1], &b_of),
        lie(c, (m, n), layouts[2], &c_of),
    ];
    // 16-bit elements are duplicated in the 8 registers of a and b, of which 16 × 16 elements need
    // only 4.
    let factor = |elements: usize| match types[1] {
        "f16" => 8,
        _ => elements / 32 / a.parts(),
    };
    let (na, nb, nc, nd) = (factor(m * k), factor(k * n), 8 / c.parts(), 8 / d.parts());
    let shape = format!("m{m}n{n}k{k}");
    let product = match types[1] {
        "f16" => format!("{}.{}", types[0], types[3]),
        _ => types.join("."),
    };
    let (ra, rb, rc, rd) = (list(10, na), list(18, nb), list(26, nc), list(4, nd.min(5)));
    let rd = if nd == 8 { list(26, 8) } else { rd };
    let body = format!(
        "wmma.load.a.sync.aligned.{}.{shape}.global.{} {ra}, [%rd2], {};
        wmma.load.b.sync.aligned.{}.{shape}.{} {rb}, [%rd2+2048];
        wmma.load.c.sync.aligned.{}.{shape}.{} {rc}, [%rd2+4096];
        wmma.mma.sync.aligned.{}.{}.{shape}.{product} {rd}, {ra}, {rb}, {rc};
        wmma.store.d.sync.aligned.{}.{shape}.{} [%rd1], {rd};",
        layouts[0],
        types[1],
        if layouts[0] == "row" { k } else { m },
        layouts[1],
        types[2],
        layouts[2],
        types[3],
        layouts[0],
        layouts[1],
        layouts[3],
        types[0],
    );
    let out = run_text(&kernel(&body), 32, &input.concat(), 2048);
    let sum = move |row: usize, column: usize| {
        (0..k).map(|k| a_of(row, k) * b_of(k, column)).sum::<i64>() + c_of(row, column)
    };
    assert_eq!(
        out[..m * n * 4 / d.parts()],
        lie(d, (m, n), layouts[3], &sum)[..m * n * 4 / d.parts()],
        "{body}"
    );
}

#[test]
fn opaque_fragments() {
    let sizes = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];
    for (m, n, k) in sizes {
        wmma(m, n, k, ["row", "col", "row", "row"], ["f32", "f16", "f16", "f32"]);
        wmma(m, n, k, ["col", "row", "col", "row"], ["f16", "f16", "f16", "f16"]);
        wmma(m, n, k, ["row", "row", "row", "col"], ["f32", "f16", "f16", "f16"]);
        wmma(m, n, k, ["col", "col", "col", "col"], ["f16", "f16", "f16", "f32"]);
        wmma(m, n, k, ["row", "col", "row", "row"], ["f32", "bf16", "bf16", "f32"]);
        wmma(m, n, k, ["row", "col", "row", "row"], ["s32", "s8", "s8", "s32"]);
    }
    wmma(16, 16, 8, ["row", "row", "col", "row"], ["f32", "tf32", "tf32", "f32"]);
}

#[test]
fn all_lanes_take_part_in_a_matrix() {
    let product =
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r9, %r10}, {%r4}, {%r4}, {%r5, %r5};";
    let undefined = |text: &str, threads: u32| {
        let fault = fault_of(text, threads, 128);
        assert!(matches!(fault.kind, FaultKind::Undefined(_)), "{fault}");
    };
    undefined(&kernel(product), 16);
    undefined(&kernel(&format!("setp.eq.u32 %p1, %r0, 3; @%p1 ret; {product}")), 32);
    undefined(&kernel(&format!("setp.eq.u32 %p1, %r0, 3; @%p1 {product}")), 32);
    // Diverged lanes converge at the product.
    let diverged =
        format!("setp.lt.u32 %p1, %r0, 16; @%p1 bra MEET; add.u32 %r4, %r4, 1; MEET: {product}");
    run_text(&kernel(&diverged), 32, &[0; 4], 128);
    decode(&kernel(
        "wmma.mma.sync.aligned.row.col.m16n16k16.satfinite.f16.f16 {%r1, %r2, %r3, %r4},
        {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8},
        {%r1, %r2, %r3, %r4};",
    ))
    .unwrap_err();
}

#[test]
fn rows_have_bounds_and_an_alignment() {
    let fault = fault_of(
        &kernel_with(
            TILE,
            "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 64, %r4;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r5];",
        ),
        32,
        4,
    );
    assert!(
        matches!(fault.kind, FaultKind::OutOfBounds { address: 1024, bytes: 16, .. }),
        "{fault}"
    );
    assert_eq!(fault.site.thread, [16, 0, 0]);
    let fault = fault_of(
        &kernel_with(
            TILE,
            "mov.u32 %r4, tile;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r4+8];",
        ),
        32,
        4,
    );
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 16, .. }), "{fault}");
}
