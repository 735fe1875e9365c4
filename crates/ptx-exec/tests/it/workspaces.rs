//! The workspace of cooperative grids, whose address is in `%envreg1` and `%envreg2`.

use retrograph_ptx::parse;
use retrograph_ptx_exec::{FaultKind, Launch, Program};

use super::{Bench, decode, kernel, words};

/// `%rd8` is the workspace.
const ADDRESS: &str = "mov.u32 %r5, %envreg1; mov.u32 %r6, %envreg2; mov.b64 %rd8, {%r6, %r5};";

/// A kernel with a barrier of the grid at each `SYNC`, as `cooperative_groups` compiles it.
fn with_barriers(body: &str) -> String {
    let barrier = |at: usize| {
        format!(
            "bar.sync 0; setp.ne.u32 %p2, %r3, 0; @%p2 bra SYNCED_{at};
            mov.u32 %r9, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra ARRIVE_{at};
            mov.u32 %r9, %nctaid.x; sub.u32 %r9, 0x80000001, %r9;
            ARRIVE_{at}: atom.add.release.gpu.u32 %r8, [%rd8+4], %r9;
            POLL_{at}: ld.acquire.gpu.u32 %r9, [%rd8+4]; xor.b32 %r9, %r9, %r8;
            setp.ge.s32 %p2, %r9, 0; @%p2 bra POLL_{at};
            SYNCED_{at}: bar.sync 0;"
        )
    };
    let mut parts = body.split("SYNC");
    let first = format!("{ADDRESS} {}", parts.next().unwrap_or_default());
    kernel(&parts.enumerate().fold(first, |text, (at, part)| text + &barrier(at) + part))
}

#[test]
fn a_barrier_in_the_workspace_orders_all_blocks() {
    // Three times, each thread adds its neighbour's value of the previous round, in another block.
    let body = "st.global.u32 [%rd3], %r1; mov.u32 %r10, 0;
        add.u32 %r6, %r1, 1; mov.u32 %r5, %nctaid.x; rem.u32 %r6, %r6, %r5;
        mad.lo.u32 %r6, %r6, %r2, %r3; mad.wide.u32 %rd7, %r6, 4, %rd1;
        LOOP: SYNC
        ld.global.u32 %r7, [%rd7]; ld.global.u32 %r4, [%rd3];
        SYNC
        add.u32 %r7, %r7, %r4; st.global.u32 [%rd3], %r7;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra LOOP;";
    let program = decode(&with_barriers(body)).unwrap();
    let blocks = 8;
    let expected = |block: u32| {
        let at = |distance: u32| (block + distance) % blocks;
        at(0) + 3 * at(1) + 3 * at(2) + at(3)
    };
    for (threads, seed, cluster) in [(1, 0, 1), (8, 5, 1), (1, 9, 2)] {
        for races in [false, true] {
            let bench = Bench::new(&[0; 4], 4 * 64 * blocks as usize);
            let (grid, block, cluster) = ([blocks, 1, 1], [64, 1, 1], [cluster, 1, 1]);
            let launch = Launch { grid, block, cluster, is_cooperative: true, ..Launch::default() };
            let launch = Launch { threads, seed, races, ..launch };
            bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
            let found = words(&bench.output());
            let expected = (0..64 * blocks).map(|thread| expected(thread / 64));
            assert!(found.into_iter().eq(expected), "seed {seed}, races {races}");
        }
    }
}

#[test]
fn a_missing_barrier_in_the_workspace_is_a_race() {
    let run = |body: &str| {
        let neighbour = "xor.b32 %r6, %r0, 64; mad.wide.u32 %rd7, %r6, 4, %rd1;";
        let program = decode(&with_barriers(&format!("{neighbour} {body}"))).unwrap();
        let bench = Bench::new(&[0; 4], 4 * 128);
        let (grid, block) = ([2, 1, 1], [64, 1, 1]);
        let launch = Launch { grid, block, is_cooperative: true, races: true, ..Launch::default() };
        bench.launch(&program, launch).map_err(|fault| fault.kind)
    };
    run("st.global.u32 [%rd3], 1; SYNC ld.global.u32 %r7, [%rd7];").unwrap();
    let racing = run("SYNC st.global.u32 [%rd3], 1; ld.global.u32 %r7, [%rd7];").unwrap_err();
    assert!(matches!(racing, FaultKind::Race { .. }), "{racing:?}");
}

#[test]
fn only_cooperative_grids_have_a_workspace_and_each_launch_resets_it() {
    let body = "setp.eq.u64 %p1, %rd8, 0; st.global.u32 [%rd1], 0; @%p1 bra END;
        ld.u32 %r7, [%rd8]; st.global.u32 [%rd1], %r7;
        ld.u32 %r7, [%rd8+4]; st.global.u32 [%rd1+4], %r7;
        ld.u32 %r7, [%rd8+8]; st.global.u32 [%rd1+8], %r7;
        ld.u32 %r7, [%rd8+12]; st.global.u32 [%rd1+12], %r7;
        SYNC
        END:";
    let program = decode(&with_barriers(body)).unwrap();
    let bench = Bench::new(&[0; 4], 16);
    let before = (bench.memory.used(), bench.memory.allocations());
    bench.launch(&program, Launch::default()).unwrap();
    assert_eq!(words(&bench.output())[0], 0);
    for _ in 0..2 {
        bench.launch(&program, Launch { is_cooperative: true, ..Launch::default() }).unwrap();
        assert_eq!(words(&bench.output()), [16, 0, 1, 0], "recorded on an H200");
    }
    let after = (bench.memory.used(), bench.memory.allocations());
    assert_eq!(before, after, "it is no allocation of the program");
}

#[test]
fn a_kernel_that_reads_another_environment_register_is_refused() {
    let decoded = |register: u32| {
        let module = parse(&kernel(&format!("mov.u32 %r5, %envreg{register};"))).unwrap();
        Program::decode(&module, "k", &|_| None)
    };
    assert!(decoded(1).is_ok() && decoded(2).is_ok());
    for register in [0, 3, 31] {
        let message = decoded(register).unwrap_err().to_string();
        assert!(message.contains(&format!("%envreg{register}")), "{message}");
    }
}
