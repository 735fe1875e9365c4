//! `wgmma` products.

use retrograph_ptx_exec::memory::POISON;
use retrograph_ptx_exec::{FaultKind, Launch, Undefined};

use super::{Bench, bytes_of, decode, fault_of, kernel_with, run_text, words};

/// Offset of b after a, and bytes of both.
const B: usize = 8192;
const BYTES: usize = 4 * 8192;
/// A descriptor of lines of 128 bytes whose eights and 64s follow each other, without its start.
const DESCRIPTOR: u64 = 1 << 62 | 64 << 32 | 512 << 16;

/// The transposed matrices, and the columns of b.
#[derive(Clone, Copy)]
struct Case {
    transposed: [bool; 2],
    columns: usize,
}

const PLAIN: Case = Case { transposed: [false; 2], columns: 64 };

/// The element of a matrix at a row or column and a step.
fn element(matrix: usize, line: usize, step: usize) -> f32 {
    ((line * (5 + matrix) + step * 7) % 13) as f32 - 6.0
}

/// The contents of shared memory: both matrices with 64 steps.
fn tiles(case: Case) -> Vec<u32> {
    tiles_of(case, element)
}

/// [`tiles`] with other elements.
fn tiles_of(case: Case, element: fn(usize, usize, usize) -> f32) -> Vec<u32> {
    let mut halves = vec![0u16; BYTES / 2];
    for (matrix, extent) in [(0, 64), (1, case.columns)] {
        for (line, step) in (0..extent).flat_map(|line| (0..64).map(move |step| (line, step))) {
            let (run, place) = if case.transposed[matrix] { (step, line) } else { (line, step) };
            let tile = if case.transposed[matrix] { place / 64 * 8192 } else { 0 };
            let piece = (place % 64 / 8) ^ (run % 8);
            let byte = matrix * B + tile + run * 128 + piece * 16 + place % 8 * 2;
            halves[byte / 2] = (element(matrix, line, step).to_bits() >> 16) as u16;
        }
    }
    halves.chunks_exact(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect()
}

/// The product of the 16 steps at descriptors `%rd20` and `%rd21`.
fn multiply(case: Case) -> String {
    let sums: Vec<String> = (0..case.columns / 2).map(|i| format!("%s{i}")).collect();
    let [a, b] = case.transposed.map(u8::from);
    format!(
        "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16 {{{}}}, \
         %rd20, %rd21, 1, 1, 1, {a}, {b};",
        case.columns,
        sums.join(", ")
    )
}

/// Four warps fill shared memory, run `body`, and store their sums.
fn text(case: Case, body: &str) -> String {
    let (sums, tile) = (case.columns / 2, format!(".shared .align 1024 .b8 tile[{BYTES}];"));
    let clear: String = (0..sums).map(|i| format!("mov.f32 %s{i}, 0f00000000; ")).collect();
    let store: String =
        (0..sums).map(|i| format!("st.global.f32 [%rd22+{}], %s{i}; ", 4 * i)).collect();
    let declarations = format!("{tile} .reg .f32 %s<{sums}>;");
    let text = kernel_with(
        &declarations,
        &format!(
            "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 4, %r4; mov.u64 %rd7, %rd4; mov.u32 %r6, 0;
            fill: ld.global.u32 %r7, [%rd7]; st.shared.u32 [%r5], %r7;
            add.u64 %rd7, %rd7, 512; add.u32 %r5, %r5, 512; add.u32 %r6, %r6, 512;
            setp.lt.u32 %p1, %r6, {BYTES}; @%p1 bra fill;
            fence.proxy.async.shared::cta; bar.sync 0;
            shr.u32 %r8, %r4, 4; cvt.u64.u32 %rd20, %r8; add.u64 %rd20, %rd20, {DESCRIPTOR};
            add.u64 %rd21, %rd20, {};
            mad.wide.u32 %rd22, %r0, {}, %rd1;
            {clear} {body} {store}",
            B / 16,
            4 * sums,
        ),
    );
    text.replace(".target sm_90\n", ".target sm_90a\n")
}

/// The sums, thread after thread.
fn run(case: Case, body: &str) -> Vec<f32> {
    let out = run_text(&text(case, body), 128, &bytes_of(&tiles(case)), 256 * case.columns);
    out.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The products of `steps` as the threads hold them.
fn expected(case: Case, steps: std::ops::Range<usize>) -> Vec<f32> {
    let product = |(row, column)| {
        steps.clone().map(|step| element(0, row, step) * element(1, column, step)).sum()
    };
    as_held(case, product)
}

/// The elements of a product as the threads hold them.
fn as_held(case: Case, product: impl Fn((usize, usize)) -> f32) -> Vec<f32> {
    let sums = case.columns / 2;
    let place = |thread: usize, i: usize| {
        let (warp, lane) = (thread / 32, thread % 32);
        (16 * warp + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)
    };
    (0..128).flat_map(|thread| (0..sums).map(move |i| place(thread, i))).map(product).collect()
}

const END: &str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;";
const FENCE: &str = "wgmma.fence.sync.aligned;";

#[test]
fn matrices_are_read_in_either_order() {
    for columns in [64, 96, 128, 192] {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let case = Case { transposed, columns };
            let one = multiply(case);
            assert_eq!(run(case, &format!("{FENCE} {one} {END}")), expected(case, 0..16));
            // The next 16 steps are two pieces further in a line, or 16 lines further.
            let [a, b] = transposed.map(|transposed| if transposed { 128 } else { 2 });
            let next = format!("add.u64 %rd20, %rd20, {a}; add.u64 %rd21, %rd21, {b};");
            let two = run(case, &format!("{FENCE} {one} {next} {one} {END}"));
            assert_eq!(two, expected(case, 0..32), "{transposed:?}");
        }
    }
}

#[test]
fn steps_are_added_in_their_order() {
    // A small number is lost if it is added between two large ones, which cancel.
    let far = |matrix: usize, line: usize, step: usize| match (matrix, step % 4) {
        (0, 0) => 2.0f32.powi(60),
        (0, 2) => -2.0f32.powi(60),
        (0, _) => element(0, line, step),
        _ => element(1, line, step / 4),
    };
    let text = text(PLAIN, &format!("{FENCE} {} {END}", multiply(PLAIN)));
    let out = run_text(&text, 128, &bytes_of(&tiles_of(PLAIN, far)), 256 * PLAIN.columns);
    let product = |steps: &mut dyn Iterator<Item = usize>, (row, column)| {
        let term = |step| f64::from(far(0, row, step)) * f64::from(far(1, column, step));
        steps.map(term).fold(0.0, |sum, term| sum + term) as f32
    };
    let want = as_held(PLAIN, |place| product(&mut (0..16), place));
    let reverse = as_held(PLAIN, |place| product(&mut (0..16).rev(), place));
    assert!(want != reverse);
    assert!(words(&out).into_iter().map(f32::from_bits).eq(want));
}

#[test]
fn operands_negate_inputs_and_reset_accumulators() {
    let one = multiply(PLAIN);
    let minus = run(PLAIN, &format!("{FENCE} {} {END}", one.replace(", 1, 1, 1,", ", 1, -1, 1,")));
    assert_eq!(minus, expected(PLAIN, 0..16).iter().map(|sum| -sum).collect::<Vec<_>>());
    let anew = one.replace(", 1, 1, 1,", ", !%p2, 1, 1,");
    let anew = format!("{FENCE} setp.eq.u32 %p2, 0, 0; {one} {anew} {END}");
    assert_eq!(run(PLAIN, &anew), expected(PLAIN, 0..16));
}

#[test]
fn accumulators_return_at_the_wait_that_covers_them() {
    let (one, commit) = (multiply(PLAIN), "wgmma.commit_group.sync.aligned;");
    let lost = |body: &str| {
        let out = run(PLAIN, body);
        out.iter().all(|sum| sum.to_bits() == POISON)
    };
    assert!(lost(&format!("{FENCE} {one} {commit}")));
    assert!(lost(&format!("{FENCE} {one} wgmma.wait_group.sync.aligned 0;")));
    let early = format!("{FENCE} {one} {commit} {one} {commit} wgmma.wait_group.sync.aligned 1;");
    assert!(lost(&early));
    let twice: Vec<f32> = expected(PLAIN, 0..16).iter().map(|sum| 2.0 * sum).collect();
    assert_eq!(run(PLAIN, &format!("{early} wgmma.wait_group.sync.aligned 0;")), twice);
}

#[test]
fn matrices_are_read_as_late_as_possible() {
    let body = format!(
        "{FENCE} {} wgmma.commit_group.sync.aligned; bar.sync 0;
        mad.lo.u32 %r5, %r0, 64, %r4; mov.u32 %r6, 0;
        clear: st.shared.u32 [%r5], 0; add.u32 %r5, %r5, 4; add.u32 %r6, %r6, 4;
        setp.lt.u32 %p1, %r6, 64; @%p1 bra clear; fence.proxy.async; bar.sync 0;
        wgmma.wait_group.sync.aligned 0;",
        multiply(PLAIN)
    );
    assert!(run(PLAIN, &body).iter().all(|&sum| sum == 0.0));
}

#[test]
fn undefined_behaviour_is_refused() {
    let one = multiply(PLAIN);
    let said = |body: &str| {
        let text = text(PLAIN, body).replace("ld.global.u32 %r7, [%rd7]", "mov.u32 %r7, 0");
        match fault_of(&text, 128, 256 * 64).kind {
            FaultKind::Undefined(undefined) => undefined,
            other => panic!("{other} for {body}"),
        }
    };
    assert_eq!(said(&format!("{one} {END}")), Undefined::UnfencedAccumulators);
    let written = format!("{FENCE} {one} mov.f32 %s3, 0f00000000; {one} {END}");
    assert_eq!(said(&written), Undefined::AccumulatorWritten);
    // A write before the wait, and without a wait.
    for end in [END, ""] {
        let written = format!("{FENCE} {one} mov.f32 %s3, 0f00000000; {end}");
        assert_eq!(said(&written), Undefined::AccumulatorWritten);
    }
    let apart = format!("{FENCE} cvt.u64.u32 %rd9, %r0; add.u64 %rd20, %rd20, %rd9; {one} {END}");
    assert_eq!(said(&apart), Undefined::DescriptorsDiffer);
    let plain = format!("{FENCE} sub.u64 %rd20, %rd20, {}; {one} {END}", 1u64 << 62);
    assert_eq!(said(&plain), Undefined::Swizzle);
    let shifted = format!("{FENCE} add.u64 %rd20, %rd20, 8; {one} {END}");
    assert_eq!(said(&shifted), Undefined::DescriptorAlignment);
    let some = format!("{FENCE} setp.lt.u32 %p2, %r0, 9; @%p2 {one} {END}");
    assert_eq!(said(&some), Undefined::PartialWgmma);
    let copy = "mad.lo.u32 %r5, %r0, 16, %r4; mov.u64 %rd7, %rd2;
        cp.async.ca.shared.global [%r5], [%rd7], 4; cp.async.wait_all;";
    let unfenced = said(&format!("{copy} bar.sync 0; {FENCE} {one} {END}"));
    assert_eq!(unfenced, Undefined::UnfencedSharedMemory);
    let store = "mad.lo.u32 %r5, %r0, 16, %r4; st.shared.v2.u32 [%r5], {%r6, %r6};";
    // The fences of three warps do not cover a store of the fourth.
    let three = "bar.sync 0; setp.lt.u32 %p2, %r0, 96; @%p2 fence.proxy.async;";
    for fence in ["", three] {
        let stored = format!("{store} {fence} bar.sync 0; {FENCE} {one} {END}");
        assert_eq!(said(&stored), Undefined::UnfencedSharedMemory, "{fence}");
    }
    let fenced = format!("{store} fence.proxy.async; bar.sync 0; {FENCE} {one} {END}");
    assert_eq!(run(PLAIN, &fenced).len(), 128 * 32);
    let fenced = format!("{copy} fence.proxy.async; bar.sync 0; {FENCE} {one} {END}");
    assert!(decode(&text(PLAIN, &fenced)).is_ok());
    assert_eq!(run(PLAIN, &fenced).len(), 128 * 32);
}

#[test]
fn a_product_races_with_stores_that_no_barrier_orders() {
    let product = text(PLAIN, &format!("{FENCE} {} {END}", multiply(PLAIN)));
    let run = |text: &str| {
        let bench = Bench::new(&bytes_of(&tiles(PLAIN)), 256 * PLAIN.columns);
        let launch = Launch { block: [128, 1, 1], races: true, ..Launch::default() };
        bench.launch(&decode(text).unwrap(), launch).map_err(|fault| fault.kind)
    };
    run(&product).unwrap();
    let unordered = run(&product.replace("bar.sync 0;", "")).unwrap_err();
    assert!(matches!(unordered, FaultKind::Race { .. }), "{unordered}");
}
