//! Detection of races.

use retrograph_ptx::ast::StateSpace;
use retrograph_ptx_exec::{Fault, FaultKind, Launch, LaunchStats, RacingAccess};

use super::{Bench, bytes_of, decode, kernel, kernel_with};

const TILE: &str = ".shared .align 16 .b8 tile[1024];";
/// `%r5` is the address of the thread's word in shared memory, `%r6` the address of the word of the
/// thread 32 further.
const WORD_ADDRESSES: &str = "mov.u32 %r4, tile; mad.lo.u32 %r5, %r3, 4, %r4;
    xor.b32 %r7, %r3, 32; mad.lo.u32 %r6, %r7, 4, %r4;";

fn watch(text: &str, launch: Launch<'_>) -> Result<LaunchStats, Fault> {
    let bench = Bench::new(&bytes_of(&[0; 64]), 4 * 1024);
    let program = decode(text).unwrap_or_else(|error| panic!("{error}"));
    bench.launch(&program, Launch { races: true, threads: 2, ..launch })
}

fn shared(body: &str) -> Result<LaunchStats, Fault> {
    let text = kernel_with(TILE, &format!("{WORD_ADDRESSES} {body}"));
    watch(&text, Launch { block: [64, 1, 1], ..Launch::default() })
}

#[track_caller]
fn expect_race(result: Result<LaunchStats, Fault>, this: RacingAccess, that: RacingAccess) {
    let fault = result.expect_err("no race was found");
    match &fault.kind {
        FaultKind::Race { this: found, that: other, .. } => {
            assert_eq!((*found, *other), (this, that), "{fault}");
        }
        _ => panic!("{fault}"),
    }
}

use RacingAccess::{Read, Write};

#[test]
fn a_missing_barrier_is_reported_with_both_threads() {
    let exchange = "st.shared.u32 [%r5], %r3; ld.shared.u32 %r8, [%r6];";
    let fault = shared(exchange).unwrap_err();
    let FaultKind::Race { address, space, ref other, .. } = fault.kind else { panic!("{fault}") };
    // The second warp writes a value that the first has read.
    assert_eq!((address, space), (128, StateSpace::Shared));
    assert_eq!((fault.site.thread, other.thread), ([32, 0, 0], [0, 0, 0]));
    assert_eq!(fault.site.text, "st.shared.u32 [%r5], %r3;");
    assert_eq!(other.text, "ld.shared.u32 %r8, [%r6];");
    let said = fault.to_string();
    assert!(said.contains("a write of the byte at 0x80 of shared memory"), "{said}");
    assert!(said.contains("not ordered with a read"), "{said}");

    let kept = "st.shared.u32 [%r5], %r3; bar.sync 0; ld.shared.u32 %r8, [%r6];";
    shared(kept).unwrap();
    // The second round overwrites a value that the other warp has not read yet.
    expect_race(shared(&format!("{kept} st.shared.u32 [%r5], 7;")), Read, Write);
    shared(&format!("{kept} bar.sync 0; st.shared.u32 [%r5], 7;")).unwrap();
}

#[test]
fn race_detection_is_off_by_default() {
    let text = kernel_with(
        TILE,
        &format!("{WORD_ADDRESSES} st.shared.u32 [%r6], 1; ld.shared.u32 %r8, [%r5];"),
    );
    let bench = Bench::new(&[0; 4], 4);
    bench
        .launch(&decode(&text).unwrap(), Launch { block: [64, 1, 1], ..Launch::default() })
        .unwrap();
}

#[test]
fn lanes_of_a_warp_race_without_a_warp_barrier() {
    let neighbour = "xor.b32 %r7, %r3, 1; mad.lo.u32 %r6, %r7, 4, %r4;";
    let exchange = |middle: &str| {
        shared(&format!("{neighbour} st.shared.u32 [%r5], %r3; {middle} ld.shared.u32 %r8, [%r6];"))
    };
    expect_race(exchange(""), Read, Write);
    exchange("bar.warp.sync -1;").unwrap();
    exchange("bar.sync 0;").unwrap();
}

#[test]
fn writing_the_same_value_is_not_a_race() {
    shared("st.shared.u32 [%r4], 5;").unwrap();
    expect_race(shared("st.shared.u32 [%r4], %r3;"), Write, Write);
    // Different bytes of a word do not race.
    shared("add.u32 %r5, %r4, %r3; st.shared.u8 [%r5], %r3;").unwrap();
}

#[test]
fn atomics_do_not_race_with_each_other() {
    shared(
        "setp.eq.u32 %p1, %r3, 0; @%p1 st.shared.u32 [%r4], 0; bar.sync 0;
        atom.shared.add.u32 %r8, [%r4], 1; bar.sync 0; ld.shared.u32 %r8, [%r4];",
    )
    .unwrap();
    expect_race(
        shared("atom.shared.add.u32 %r8, [%r4], 1; ld.shared.u32 %r8, [%r4];"),
        Write,
        Read,
    );
}

#[test]
fn a_flag_orders_earlier_writes() {
    // The second warp spins until the first one has raised the flag.
    let body = |load: &str| {
        format!(
            "
        setp.ge.u32 %p1, %r3, 32; setp.eq.u32 %p2, %r3, 0;
        @%p2 st.shared.u32 [%r4+512], 0; bar.sync 0;
        @%p1 bra SPIN;
        st.shared.u32 [%r5], %r3; bar.warp.sync -1;
        @%p2 st.volatile.shared.u32 [%r4+512], 1;
        bra END;
        SPIN: {load} %r8, [%r4+512];
        setp.eq.u32 %p3, %r8, 0; @%p3 bra SPIN;
        ld.shared.u32 %r8, [%r6];
        END: add.u32 %r9, %r9, 1;"
        )
    };
    shared(&body("ld.volatile.shared.u32")).unwrap();
    expect_race(shared(&body("ld.shared.u32")), Read, Write);
}

#[test]
fn warps_that_only_arrive_are_ordered_before_those_that_wait() {
    let pass = |second: &str| {
        format!(
            "setp.ge.u32 %p1, %r3, 32; @%p1 bra TAKE;
        st.shared.u32 [%r5], %r3; bar.arrive 1, 64; {second} bra END;
        TAKE: bar.sync 1, 64; ld.shared.u32 %r8, [%r6];
        END: add.u32 %r9, %r9, 1;"
        )
    };
    shared(&pass("")).unwrap();
    // Accesses of the first warp after its arrival are not ordered.
    expect_race(shared(&pass("st.shared.u32 [%r5], 77;")), Read, Write);
}

#[test]
fn asynchronous_copies_and_matrices_are_checked() {
    let copy = "mad.wide.u32 %rd7, %r3, 4, %rd2; cp.async.ca.shared.global [%r5], [%rd7], 4;
        cp.async.wait_all;";
    expect_race(shared(&format!("{copy} ld.shared.u32 %r8, [%r6];")), Write, Read);
    shared(&format!("{copy} bar.sync 0; ld.shared.u32 %r8, [%r6];")).unwrap();
    // A barrier before the wait does not order the copy.
    let early = copy.replace("cp.async.wait_all", "bar.sync 0; cp.async.wait_all");
    expect_race(shared(&format!("{early} ld.shared.u32 %r8, [%r6];")), Write, Read);
    let rows = "and.b32 %r7, %r3, 7; mad.lo.u32 %r6, %r7, 16, %r4;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r6];";
    expect_race(shared(&format!("st.shared.u32 [%r5], 1; {rows}")), Read, Write);
    shared(&format!("st.shared.u32 [%r5], 1; bar.sync 0; {rows}")).unwrap();
}

#[test]
fn blocks_race_in_global_memory() {
    let launch = Launch { grid: [2, 1, 1], block: [32, 1, 1], ..Launch::default() };
    let run = |body: &str| watch(&kernel(body), launch);
    run("st.global.u32 [%rd3], %r0;").unwrap();
    let fault = run("st.global.u32 [%rd1], %r1;").unwrap_err();
    let FaultKind::Race { space: StateSpace::Global, ref other, .. } = fault.kind else {
        panic!("{fault}")
    };
    assert_eq!((fault.site.block, other.block), ([1, 0, 0], [0, 0, 0]));
    // The block that counts last may read the values of all.
    let last = |count: &str| {
        format!(
            "st.global.u32 [%rd3], %r0; membar.gl; bar.sync 0;
        {count}
        ld.global.u32 %r9, [%rd1]; ld.global.u32 %r9, [%rd1+128];"
        )
    };
    let counter = "atom.global.add.u32 %r8, [%rd2], 1; setp.ne.u32 %p1, %r8, 63; @%p1 ret;";
    run(&last(counter)).unwrap();
    expect_race(run(&last("")), Write, Read);
}

#[test]
fn a_write_of_the_same_value_does_not_hide_an_earlier_read() {
    // Warp 0 reads, warp 1 writes the same value and then meets warp 2, which writes another one.
    let body = "setp.ge.u32 %p1, %r3, 32; setp.ge.u32 %p2, %r3, 64;
        @%p2 bra LAST; @%p1 bra SAME;
        ld.shared.u32 %r8, [tile]; ret;
        SAME: st.shared.u32 [tile], 0x7fd05a5a; bar.sync 1, 64; ret;
        LAST: bar.sync 1, 64; setp.eq.u32 %p3, %r3, 64; @%p3 st.shared.u32 [tile], 7;";
    let launch = Launch { block: [96, 1, 1], ..Launch::default() };
    expect_race(watch(&kernel_with(TILE, body), launch), Write, Read);
}
