//! `wgmma` products in tf32 with matrix a in registers.

use retrograph_ptx_exec::memory::POISON;
use retrograph_ptx_exec::{FaultKind, Undefined};

use super::{bytes_of, fault_of, kernel_with, run_text};

/// Bytes of b, and steps of a line of b and of a thread's part of a.
const BYTES: usize = 8192;
const STEPS: usize = 32;
const HELD: usize = 16;
/// A descriptor of lines of 128 bytes whose eights follow each other, without its start.
const DESCRIPTOR: u64 = 1 << 62 | 64 << 32 | 1 << 16;

/// The element of a matrix at a row or column and a step, with extra low bits that tf32 ignores.
fn element(matrix: usize, line: usize, step: usize) -> f32 {
    ((line * (5 + matrix) + step * 7) % 13) as f32 - 6.0
}

fn with_more(value: f32, more: u32) -> u32 {
    value.to_bits() | more & 0x1fff
}

/// The part of b in shared memory, then the part of a in registers: four for eight steps.
fn input(columns: usize) -> Vec<u32> {
    let mut words = vec![0; BYTES / 4];
    for (column, step) in (0..columns).flat_map(|c| (0..STEPS).map(move |s| (c, s))) {
        let piece = (step / 4) ^ (column % 8);
        let word = column * 32 + piece * 4 + step % 4;
        words[word] = with_more(element(1, column, step), word as u32);
    }
    for thread in 0..128 {
        let (warp, group, member) = (thread / 32, thread % 32 / 4, thread % 4);
        words.extend((0..HELD / 2).map(|i| {
            let row = 16 * warp + group + i % 2 * 8;
            let step = i / 4 * 8 + member + i / 2 % 2 * 4;
            with_more(element(0, row, step), 0x1555)
        }));
    }
    words
}

/// The product of the eight steps in `%a<first>` and at descriptor `%rd21`.
fn multiply(columns: usize, first: usize) -> String {
    let list = |name: &str, range: std::ops::Range<usize>| {
        range.map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "wgmma.mma_async.sync.aligned.m64n{columns}k8.f32.tf32.tf32 {{{}}}, {{{}}}, %rd21, \
         1, 1, 1;",
        list("s", 0..columns / 2),
        list("a", first..first + 4),
    )
}

/// Four warps fill shared memory and registers, run `body`, and store their sums.
fn text(columns: usize, body: &str) -> String {
    let (sums, held) = (columns / 2, HELD / 2);
    let each = |count: usize, what: &dyn Fn(usize) -> String| -> String {
        (0..count).map(what).collect::<Vec<_>>().join(" ")
    };
    let declarations = format!(
        ".shared .align 1024 .b8 tile[{BYTES}]; .reg .f32 %s<{sums}>; .reg .b32 %a<{held}>;"
    );
    let text = kernel_with(
        &declarations,
        &format!(
            "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 4, %r4; mov.u64 %rd7, %rd4; mov.u32 %r6, 0;
            fill: ld.global.u32 %r7, [%rd7]; st.shared.u32 [%r5], %r7;
            add.u64 %rd7, %rd7, 512; add.u32 %r5, %r5, 512; add.u32 %r6, %r6, 512;
            setp.lt.u32 %p1, %r6, {BYTES}; @%p1 bra fill;
            fence.proxy.async.shared::cta; bar.sync 0;
            shr.u32 %r8, %r4, 4; cvt.u64.u32 %rd21, %r8; add.u64 %rd21, %rd21, {DESCRIPTOR};
            mad.wide.u32 %rd22, %r0, {}, %rd1; mad.wide.u32 %rd23, %r0, {}, %rd2;
            {} {} {body} {}",
            4 * sums,
            4 * held,
            each(held, &|i| format!("ld.global.u32 %a{i}, [%rd23+{}];", BYTES + 4 * i)),
            each(sums, &|i| format!("mov.f32 %s{i}, 0f00000000;")),
            each(sums, &|i| format!("st.global.f32 [%rd22+{}], %s{i};", 4 * i)),
        ),
    );
    text.replace(".target sm_90\n", ".target sm_90a\n")
}

/// The sums, thread after thread.
fn run(columns: usize, body: &str) -> Vec<f32> {
    let out = run_text(&text(columns, body), 128, &bytes_of(&input(columns)), 256 * columns);
    out.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The products of `steps` as the threads hold them.
fn expected(columns: usize, steps: std::ops::Range<usize>) -> Vec<f32> {
    let place = |thread: usize, i: usize| {
        let (warp, lane) = (thread / 32, thread % 32);
        (16 * warp + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)
    };
    let places = (0..128).flat_map(|thread| (0..columns / 2).map(move |i| place(thread, i)));
    let product = |(row, column)| {
        steps.clone().map(|step| element(0, row, step) * element(1, column, step)).sum()
    };
    places.map(product).collect()
}

const END: &str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;";
const FENCE: &str = "wgmma.fence.sync.aligned;";
/// The next eight steps of b are two pieces further in a line.
const NEXT: &str = "add.u64 %rd21, %rd21, 2;";

#[test]
fn rows_come_from_registers_and_columns_from_lines() {
    for columns in [32, 64] {
        let one = multiply(columns, 0);
        assert_eq!(run(columns, &format!("{FENCE} {one} {END}")), expected(columns, 0..8));
        let two = format!("{FENCE} {one} {NEXT} {} {END}", multiply(columns, 4));
        assert_eq!(run(columns, &two), expected(columns, 0..16));
    }
}

#[test]
fn operands_negate_inputs_and_reset_accumulators() {
    let one = multiply(32, 0);
    let minus = run(32, &format!("{FENCE} {} {END}", one.replace(", 1, 1, 1;", ", 1, 1, -1;")));
    assert_eq!(minus, expected(32, 0..8).iter().map(|sum| -sum).collect::<Vec<_>>());
    let anew = multiply(32, 4).replace(", 1, 1, 1;", ", 0, 1, 1;");
    assert_eq!(run(32, &format!("{FENCE} {one} {NEXT} {anew} {END}")), expected(32, 8..16));
}

#[test]
fn registers_of_a_must_not_change_until_the_wait() {
    let one = multiply(32, 0);
    // Between start and wait, a new register must not share a slot with the registers of matrix a.
    let busy = "mov.u32 %r30, 7; add.u32 %r31, %r30, %r30; st.global.u32 [%rd22], %r31;";
    assert_eq!(run(32, &format!("{FENCE} {one} {busy} {END}")), expected(32, 0..8));
    let early = format!("{FENCE} {one} wgmma.wait_group.sync.aligned 0;");
    assert!(run(32, &early).iter().all(|sum| sum.to_bits() == POISON));
}

#[test]
fn undefined_behaviour_is_refused() {
    let one = multiply(32, 0);
    let said = |body: &str| {
        let text = text(32, body).replace("ld.global.u32 %r7, [%rd7]", "mov.u32 %r7, 0");
        let constants = (0..HELD / 2)
            .fold(text, |text, i| text.replace(&format!("[%rd23+{}]", BYTES + 4 * i), "0"));
        let text = constants.replace("ld.global.u32 %a", "mov.u32 %a");
        match fault_of(&text, 128, 256 * 32).kind {
            FaultKind::Undefined(undefined) => undefined,
            other => panic!("{other} for {body}"),
        }
    };
    assert_eq!(said(&format!("{one} {END}")), Undefined::UnfencedAccumulators);
    let late = format!("{FENCE} add.u32 %a2, %r3, 1; {one} {END}");
    assert_eq!(said(&late), Undefined::UnfencedMatrixA);
    let written = format!("add.u32 %a2, %r3, 1; {FENCE} {one} mov.u32 %a2, 5; {END}");
    assert_eq!(said(&written), Undefined::MatrixAWritten);
    let apart = format!("{FENCE} cvt.u64.u32 %rd9, %r0; add.u64 %rd21, %rd21, %rd9; {one} {END}");
    assert_eq!(said(&apart), Undefined::DescriptorsDiffer);
    let plain = format!("{FENCE} sub.u64 %rd21, %rd21, {}; {one} {END}", 1u64 << 62);
    assert_eq!(said(&plain), Undefined::Swizzle);
    let copy = "mad.lo.u32 %r5, %r0, 16, %r4; mov.u64 %rd7, %rd2;
        cp.async.ca.shared.global [%r5], [%rd7], 4; cp.async.wait_all;";
    let unfenced = said(&format!("{copy} bar.sync 0; {FENCE} {one} {END}"));
    assert_eq!(unfenced, Undefined::UnfencedSharedMemory);
}
