//! Asynchronous copies.

use retrograph_ptx_exec::FaultKind;
use retrograph_ptx_exec::memory::POISON;

use super::{bytes_of, fault_of, kernel_with, run_text, words};

const TILE: &str = ".shared .align 16 .b8 tile[4096];";

/// Each thread copies its source to its 16 bytes of shared memory and stores the first word from
/// there, after `body`. The source holds 1, 2, 3 and so on.
fn run(body: &str, threads: u32) -> Vec<u32> {
    let input: Vec<u32> = (1..=4 * threads).collect();
    let text = kernel_with(
        TILE,
        &format!(
            "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 16, %r4; mad.wide.u32 %rd7, %r0, 16, %rd2;
            {body}
            ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6;"
        ),
    );
    words(&run_text(&text, threads, &bytes_of(&input), 4 * threads as usize))
}

const COPY: &str = "cp.async.cg.shared.global [%r5], [%rd7], 16;";

#[test]
fn a_copy_lands_at_its_wait() {
    let want: Vec<u32> = (0..64).map(|thread| 4 * thread + 1).collect();
    assert_eq!(run(&format!("{COPY} cp.async.wait_all;"), 64), want);
    let group = format!("{COPY} cp.async.commit_group; cp.async.wait_group 0;");
    assert_eq!(run(&group, 64), want);
}

#[test]
fn without_a_wait_the_destination_is_poison() {
    let poison = vec![POISON; 64];
    // Issuing the copy destroys the previous contents, too.
    let fresh = format!("st.shared.u32 [%r5], 7; {COPY}");
    assert_eq!(run(&fresh, 64), poison);
    assert_eq!(run(&format!("{COPY} cp.async.commit_group;"), 64), poison);
    assert_eq!(run(&format!("{COPY} bar.sync 0;"), 64), poison);
    // The wait allows one open group, and there is only one.
    let early = format!("{COPY} cp.async.commit_group; cp.async.wait_group 1;");
    assert_eq!(run(&early, 64), poison);
    // The wait does not cover an uncommitted group.
    assert_eq!(run(&format!("{COPY} cp.async.wait_group 0;"), 64), poison);
}

#[test]
fn groups_land_in_their_order() {
    let body = |open: u32| {
        format!(
            "{COPY} cp.async.commit_group;
            cp.async.ca.shared.global [%r5+1024], [%rd7+4], 4; cp.async.commit_group;
            cp.async.ca.shared.global [%r5+2048], [%rd7+8], 8; cp.async.commit_group;
            cp.async.wait_group {open};
            ld.shared.u32 %r7, [%r5]; ld.shared.u32 %r8, [%r5+1024];
            ld.shared.u32 %r10, [%r5+2048];
            setp.ne.u32 %p1, %r7, {POISON}; selp.b32 %r11, 1, 0, %p1;
            setp.ne.u32 %p2, %r8, {POISON}; selp.b32 %r12, 2, 0, %p2;
            setp.ne.u32 %p3, %r10, {POISON}; selp.b32 %r13, 4, 0, %p3;
            add.u32 %r11, %r11, %r12; add.u32 %r11, %r11, %r13; st.shared.u32 [%r5], %r11;"
        )
    };
    assert_eq!([0, 1, 2, 3].map(|open| run(&body(open), 32)[5]), [7, 3, 1, 0]);
}

#[test]
fn the_source_is_read_when_the_copy_lands() {
    let body = format!("{COPY} st.global.u32 [%rd7], 99; cp.async.wait_all;");
    assert_eq!(run(&body, 32), vec![99; 32]);
}

#[test]
fn each_thread_waits_for_its_own_copies() {
    let body = format!("{COPY} setp.lt.u32 %p1, %r0, 10; @%p1 cp.async.wait_all;");
    let out = run(&body, 64);
    assert_eq!((out[9], out[10]), (37, POISON));
}

#[test]
fn a_copy_without_a_wait_lands_by_the_exit_of_its_thread() {
    // The first warp copies to the words of the second warp, which stores there after a barrier and
    // loads after another one: by then the first warp may have exited.
    let body = |wait: &str| {
        format!(
            "add.u32 %r10, %r5, 512; setp.lt.u32 %p1, %r0, 32;
            @%p1 cp.async.cg.shared.global [%r10], [%rd7], 16; {wait} bar.sync 0;
            @!%p1 st.shared.u32 [%r5], 7; bar.sync 0; @%p1 exit;"
        )
    };
    let second = |wait| run(&body(wait), 64)[32..].to_vec();
    assert_eq!(second("cp.async.wait_all;"), [7; 32]);
    let copied: Vec<u32> = (0..32).map(|thread| 4 * thread + 1).collect();
    assert_eq!(second(""), copied);
}

#[test]
fn missing_source_bytes_are_zero() {
    let words_of = |size: &str| {
        let body = format!(
            "mov.u32 %r10, 8; setp.eq.u32 %p1, 0, 0;
            cp.async.cg.shared.global [%r5], [%rd7], 16{size}; cp.async.wait_all;
            ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r5];
            shl.b32 %r21, %r21, 8; shl.b32 %r22, %r22, 16; shl.b32 %r23, %r23, 24;
            or.b32 %r20, %r20, %r21; or.b32 %r22, %r22, %r23; or.b32 %r20, %r20, %r22;
            st.shared.u32 [%r5], %r20;"
        );
        run(&body, 32)[0]
    };
    assert_eq!(words_of(""), 0x0403_0201);
    assert_eq!(words_of(", %r10"), 0x0000_0201);
    assert_eq!(words_of(", 12"), 0x0003_0201);
    assert_eq!(words_of(", 0"), 0);
    assert_eq!(words_of(", %p1"), 0);
    assert_eq!(words_of(", !%p1"), 0x0403_0201);
    // A source that is not read need not be in bounds.
    let body =
        "mov.u64 %rd8, 0; cp.async.cg.shared.global [%r5], [%rd8], 16, 0; cp.async.wait_all;";
    assert_eq!(run(body, 32), vec![0; 32]);
}

#[test]
fn both_addresses_are_checked() {
    let fault = |body: &str| {
        let start = "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 16, %r4; mov.u64 %rd7, %rd2;";
        fault_of(&kernel_with(TILE, &format!("{start} {body}")), 1, 4).kind
    };
    let out = |kind: FaultKind| matches!(kind, FaultKind::OutOfBounds { .. });
    assert!(out(fault("cp.async.cg.shared.global [%r5], [%rd7+64], 16;")));
    assert!(out(fault("cp.async.cg.shared.global [%r5+4096], [%rd7], 16;")));
    let misaligned = |kind: FaultKind| matches!(kind, FaultKind::Misaligned { bytes: 16, .. });
    assert!(misaligned(fault("cp.async.cg.shared.global [%r5], [%rd7+8], 16;")));
    assert!(misaligned(fault("cp.async.cg.shared.global [%r5+8], [%rd7], 16;")));
    let more = fault("mov.u32 %r6, 20; cp.async.cg.shared.global [%r5], [%rd7], 16, %r6;");
    assert!(matches!(more, FaultKind::Undefined(_)));
}
