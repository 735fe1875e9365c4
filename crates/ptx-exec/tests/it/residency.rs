//! Grids with more blocks than the device can hold at once.

use retrograph_ptx_exec::{Fault, FaultKind, Launch, LaunchStats};

use super::{Bench, bytes_of, decode, kernel, kernel_with};

/// Every block counts itself. It then runs `WAIT`, which reads the count to `%r6`, until all blocks
/// of the grid are there.
const MEET: &str = "mov.u32 %r4, %nctaid.x;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra TOGETHER;
    atom.global.add.u32 %r5, [%rd2], 1;
    SPIN: WAIT
    setp.lt.u32 %p2, %r6, %r4;
    @%p2 bra SPIN;
    TOGETHER: bar.sync 0;";

const LOAD: &str = "ld.volatile.global.u32 %r6, [%rd2];";
const BLOCKS: u32 = 12;
const STEP_LIMIT: u64 = 1 << 20;

fn run(text: &str, launch: Launch<'_>) -> Result<LaunchStats, Fault> {
    let bench = Bench::new(&bytes_of(&[0; 4]), 4 * 64 * BLOCKS as usize);
    let (grid, block) = ([BLOCKS, 1, 1], [64, 1, 1]);
    bench.launch(&decode(text).unwrap(), Launch { grid, block, step_limit: STEP_LIMIT, ..launch })
}

/// The text of a deadlock.
fn deadlock(text: &str, launch: Launch<'_>) -> String {
    match run(text, launch).expect_err("the blocks do not fit").kind {
        FaultKind::Deadlock { waiting } => waiting,
        other => panic!("{other}"),
    }
}

#[test]
fn blocks_that_wait_for_blocks_that_do_not_fit_are_a_deadlock() {
    // A load, a failing compare-and-swap, and an exchange that changes nothing.
    let waits =
        [LOAD, "atom.global.cas.b32 %r6, [%rd2], 99, 1;", "atom.global.or.b32 %r6, [%rd2], 0;"];
    for (wait, seed) in waits.iter().flat_map(|wait| [(wait, 0), (wait, 7)]) {
        let text = kernel(&MEET.replace("WAIT", wait));
        for (limit, cluster, resident) in [(4, 1, 4), (11, 1, 11), (5, 2, 4), (7, 4, 4), (0, 3, 3)]
        {
            let (cluster, resident_blocks) = ([cluster, 1, 1], Some(limit));
            let waiting =
                deadlock(&text, Launch { cluster, resident_blocks, seed, ..Launch::default() });
            let spins =
                "warp 0 spins, and no block changes global memory; warp 1 waits at barrier 0";
            assert!(waiting.starts_with(spins), "{waiting}");
            let counts = format!(
                "; {resident} of 12 blocks are resident, and {} start only when one of these ends",
                BLOCKS - resident
            );
            assert!(waiting.ends_with(&counts), "{waiting}");
        }
        for (resident_blocks, cluster) in [(None, 1), (Some(12), 1), (Some(15), 4)] {
            let cluster = [cluster, 1, 1];
            run(&text, Launch { cluster, resident_blocks, seed, ..Launch::default() }).unwrap();
        }
        let (is_cooperative, resident_blocks) = (true, Some(4));
        run(&text, Launch { is_cooperative, resident_blocks, seed, ..Launch::default() }).unwrap();
    }
}

#[test]
fn blocks_that_poll_mbarriers_too_are_a_deadlock() {
    let wait = format!("mbarrier.test_wait.parity.shared.b64 %p3, [%r8], 0; {LOAD}");
    let init = "mov.u32 %r8, bar; setp.eq.u32 %p4, %r3, 0; @%p4 mbarrier.init.shared.b64 [%r8], 1;";
    let body = format!("{init} {}", MEET.replace("WAIT", &wait));
    let text = kernel_with(".shared .align 8 .b64 bar;", &body);
    run(&text, Launch { resident_blocks: Some(12), ..Launch::default() }).unwrap();
    let waiting = deadlock(&text, Launch { resident_blocks: Some(8), ..Launch::default() });
    assert!(waiting.contains("; 8 of 12 blocks are resident, and 4 start only"), "{waiting}");
}

#[test]
fn the_step_limit_names_blocks_that_have_not_started() {
    // Each turn has another state, because a register counts.
    let text = kernel(&MEET.replace("WAIT", &format!("add.u32 %r7, %r7, 1; {LOAD}")));
    let fault = run(&text, Launch { resident_blocks: Some(3), ..Launch::default() }).unwrap_err();
    let said = fault.to_string();
    let counts = "3 of 12 blocks are resident, and 9 start only when one of these ends; the kernel";
    assert!(matches!(fault.kind, FaultKind::StepLimit { limit: STEP_LIMIT, .. }), "{said}");
    assert!(
        said.starts_with(&format!("one block executed 1048576 instructions; {counts}")),
        "{said}"
    );
    // Nothing waits for a place if the grid fits.
    let text = kernel(&text_without_end());
    let fault = run(&text, Launch { resident_blocks: Some(12), ..Launch::default() }).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StepLimit { limit: STEP_LIMIT, not_started: None });
}

fn text_without_end() -> String {
    MEET.replace("WAIT", &format!("add.u32 %r7, %r7, 1; {LOAD} mov.u32 %r6, 0;"))
}

#[test]
fn a_long_computation_is_not_a_deadlock() {
    // Eleven blocks spin while one computes in registers. Together they exceed the step limit.
    let compute = "setp.ne.u32 %p5, %r1, 7; @%p5 bra READY;
        mov.u32 %r9, 100000;
        WORK: sub.u32 %r9, %r9, 1; setp.ne.u32 %p6, %r9, 0; @%p6 bra WORK;
        READY:";
    for (seed, cluster) in [(0, 1), (3, 1), (0, 4)] {
        let text = kernel(&format!("{compute} {}", MEET.replace("WAIT", LOAD)));
        let cluster = [cluster, 1, 1];
        let stats = run(&text, Launch { cluster, seed, ..Launch::default() }).unwrap();
        assert!(stats.warp_instructions > 2 * STEP_LIMIT, "{stats:?}");
    }
}
