//! Shuffles, votes and masks.

use retrograph_ptx_exec::{FaultKind, Launch};

use super::{Bench, decode, fault_of, kernel, kernel_with, run_text, words};

fn run(body: &str, threads: u32) -> Vec<u32> {
    let text = kernel(&format!("{body} st.global.b32 [%rd3], %r9;"));
    words(&run_text(&text, threads, &[], 4 * threads as usize))
}

#[test]
fn shuffles() {
    let found = run("shfl.sync.bfly.b32 %r9, %r0, 5, 31, -1;", 32);
    assert!(found.into_iter().eq((0..32).map(|lane| lane ^ 5)));
    let found = run("shfl.sync.down.b32 %r9, %r0, 4, 31, -1;", 32);
    assert!(found.into_iter().eq((0..32).map(|lane| if lane < 28 { lane + 4 } else { lane })));
    let found = run("shfl.sync.up.b32 %r9, %r0, 4, 0, -1;", 32);
    assert!(found.into_iter().eq((0..32).map(|lane| if lane >= 4 { lane - 4 } else { lane })));
    // Segments of eight lanes, each of which reads its third lane.
    let found = run("shfl.sync.idx.b32 %r9, %r0, 3, 0x1807, -1;", 32);
    assert!(found.into_iter().eq((0..32).map(|lane| lane / 8 * 8 + 3)));
}

#[test]
fn a_shuffle_reports_whether_the_source_is_in_range() {
    let body = "shfl.sync.down.b32 %r9|%p1, %r0, 16, 31, -1; selp.b32 %r9, 1, 0, %p1;";
    assert!(run(body, 32).into_iter().eq((0..32).map(|lane| u32::from(lane < 16))));
}

#[test]
fn a_shuffle_may_write_its_operand() {
    let body = "mov.b32 %r9, %r0; shfl.sync.bfly.b32 %r9|%p1, %r9, 1, 31, -1;";
    assert!(run(body, 32).into_iter().eq((0..32).map(|lane| lane ^ 1)));
}

#[test]
fn votes() {
    let condition = "setp.lt.u32 %p1, %r0, 3;";
    let found = run(&format!("{condition} vote.sync.ballot.b32 %r9, %p1, -1;"), 32);
    assert!(found.into_iter().all(|mask| mask == 7));
    let vote = |mode: &str| {
        let vote = format!("vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 %r9, 1, 0, %p2;");
        run(&format!("{condition} {vote}"), 32)[31]
    };
    assert_eq!([vote("any"), vote("all"), vote("uni")], [1, 0, 0]);
    let found = run(&format!("{condition} vote.sync.ballot.b32 %r9, !%p1, -1;"), 32);
    assert_eq!(found[0], !7);
}

#[test]
fn lanes_that_have_exited_are_not_expected() {
    let body = "setp.ge.u32 %p1, %r0, 16;
        @%p1 ret;
        shfl.sync.bfly.b32 %r9, %r0, 8, 31, -1;";
    assert!(run(body, 32)[..16].iter().copied().eq((0..16).map(|lane| lane ^ 8)));
}

#[test]
fn waiting_lanes_retry_if_a_part_of_the_running_group_exits() {
    // Lanes 0 to 7 wait for lanes 24 to 31, which exit while lanes 8 to 23 continue.
    let body = "mov.u32 %r9, 40;
        setp.lt.u32 %p1, %r0, 8;
        setp.ge.u32 %p2, %r0, 24;
        @!%p1 bra HIGH;
        shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xff0000ff;
        bra MEET;
        HIGH:
        @%p2 ret;
        MEET: bar.warp.sync 0x00ffffff;";
    let want = (0..24).map(|lane| if lane < 8 { lane ^ 1 } else { 40 });
    assert!(run(body, 32)[..24].iter().copied().eq(want));
}

#[test]
fn a_warp_barrier_gathers_lanes_at_different_instructions() {
    // Lanes 0 to 15 store before their barrier, and lanes 16 to 31 read after theirs.
    let declarations = ".shared .b32 s[32];";
    let body = "mov.u32 %r5, s;
        shl.b32 %r6, %r0, 2;
        add.u32 %r5, %r5, %r6;
        mov.u32 %r9, 7;
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra LOW;
        bar.warp.sync -1;
        ld.shared.b32 %r9, [%r5+-64];
        bra MEET;
        LOW: st.shared.b32 [%r5], %r0;
        bar.warp.sync -1;
        MEET: st.global.b32 [%rd3], %r9;";
    let text = kernel_with(declarations, body);
    let want = (0..32).map(|lane| if lane < 16 { 7 } else { lane - 16 });
    assert!(words(&run_text(&text, 32, &[], 128)).into_iter().eq(want));
    // The race detector knows that the barrier orders the accesses.
    let program = decode(&text).unwrap();
    for seed in 0..8 {
        let bench = Bench::new(&[], 128);
        let (grid, block) = ([1, 1, 1], [32, 1, 1]);
        let launch = Launch { grid, block, races: true, seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
    }
    // Barriers with other members do not meet.
    let other = text.replacen("bar.warp.sync -1", "bar.warp.sync 0xffffff0f", 1);
    assert_eq!(fault_of(&other, 32, 128).kind, FaultKind::BarrierDivergence);
}

#[test]
fn groups_with_disjoint_member_masks_meet_at_one_instruction() {
    // Each half of the warp names its own lanes.
    let halves = "setp.lt.u32 %p1, %r0, 16; selp.b32 %r6, 0xffff, 0xffff0000, %p1;";
    let body = format!(
        "{halves} bar.warp.sync %r6;
        shfl.sync.bfly.b32 %r7, %r0, 1, 31, %r6;
        vote.sync.ballot.b32 %r8, %p1, %r6;
        add.u32 %r9, %r7, %r8;"
    );
    let want = (0..32).map(|lane| (lane ^ 1) + if lane < 16 { 0xffff } else { 0 });
    assert!(run(&body, 32).into_iter().eq(want.clone()));
    // One half arrives in two groups.
    let apart = "setp.lt.u32 %p2, %r0, 8; @%p2 bra MEET; add.u32 %r5, %r0, 0; MEET: shfl";
    let body = body.replace("shfl", apart);
    assert!(run(&body, 32).into_iter().eq(want));
    let program = decode(&kernel(&body)).unwrap();
    for seed in 0..8 {
        let bench = Bench::new(&[], 128);
        let (grid, block) = ([1, 1, 1], [32, 1, 1]);
        let launch = Launch { grid, block, seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
    }
    // A mask that names lanes with another mask is undefined.
    for masks in ["0xffff, 0xffffff00", "0xffffffff, 0xffff0000"] {
        let body = body.replace("0xffff, 0xffff0000", masks);
        let fault = fault_of(&kernel(&body), 32, 128);
        assert!(matches!(fault.kind, FaultKind::Undefined(_)), "{fault}");
    }
}

#[test]
fn a_shuffle_gathers_lanes_that_have_diverged() {
    // Lanes reach the shuffle by two paths, one of which branches to it directly.
    let body = "mov.u32 %r5, %r0;
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra MEET;
        add.u32 %r5, %r5, 100;
        MEET: shfl.sync.bfly.b32 %r9, %r5, 16, 31, -1;";
    let want = (0..32).map(|lane| if lane < 16 { lane + 116 } else { lane - 16 });
    assert!(run(body, 32).into_iter().eq(want));
}

#[test]
fn lanes_reconverge_where_the_paths_meet() {
    let paths = "setp.lt.u32 %p1, %r0, 8; @%p1 bra LOW;
        activemask.b32 %r9; bra MEET;
        LOW: activemask.b32 %r9;
        MEET: activemask.b32 %r5;";
    let apart = (0..32).map(|lane| if lane < 8 { 0xff } else { !0xff });
    assert!(run(paths, 32).into_iter().eq(apart));
    assert_eq!(run(&format!("{paths} mov.b32 %r9, %r5;"), 32), [u32::MAX; 32]);
}

#[test]
fn activemask_returns_the_active_lanes() {
    let body = "mov.u32 %r9, 0;
        setp.lt.u32 %p1, %r0, 4;
        @%p1 activemask.b32 %r9;
        bar.warp.sync -1;";
    let found = run(body, 32);
    assert_eq!((found[0], found[4]), (15, 0));
}
