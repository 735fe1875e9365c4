//! Grids: host threads, orders, dynamic shared memory, limits.

use retrograph_ptx::parse;
use retrograph_ptx_exec::{Fault, FaultKind, Launch, Program, Undefined};

use super::{Bench, bytes_of, decode, kernel, kernel_with, words};

/// A kernel whose work depends on the thread, so blocks take different times.
fn uneven() -> Program {
    let body = "ld.global.u32 %r5, [%rd4];
        and.b32 %r6, %r0, 63;
        LOOP: mad.lo.u32 %r5, %r5, 1664525, 1013904223;
        sub.u32 %r6, %r6, 1;
        setp.gt.s32 %p1, %r6, 0;
        @%p1 bra LOOP;
        st.global.u32 [%rd3], %r5;";
    decode(&kernel(body)).unwrap()
}

#[test]
fn results_do_not_depend_on_host_threads_or_order() {
    let program = uneven();
    let input: Vec<u32> = (0..64 * 300).collect();
    let run = |threads, seed| {
        let bench = Bench::new(&bytes_of(&input), 4 * input.len());
        let launch =
            Launch { grid: [300, 1, 1], block: [64, 1, 1], threads, seed, ..Launch::default() };
        let stats = bench.launch(&program, launch).unwrap();
        (stats, bench.output())
    };
    let alone = run(1, 0);
    assert_eq!(alone.0.blocks, 300);
    assert!(alone.0.warp_instructions > 20_000, "the launch must be large enough for threads");
    for (threads, seed) in [(2, 0), (3, 0), (3, 99), (8, 0), (8, 1), (1, 7)] {
        let (stats, output) = run(threads, seed);
        assert!(output == alone.1, "{threads} threads, seed {seed}");
        // With a seed, groups of lanes may run separately that could run together.
        assert!(seed != 0 || stats == alone.0, "{threads} threads");
    }
}

#[test]
fn a_block_may_wait_for_another_one() {
    // All blocks meet at a counter; each then reads its neighbour's value.
    let body = "st.global.u32 [%rd3], %r1; membar.gl; bar.sync 0;
        setp.ne.u32 %p1, %r3, 0; @%p1 bra WAIT;
        atom.global.add.u32 %r5, [%rd2], 1;
        SPIN: ld.acquire.gpu.global.u32 %r5, [%rd2];
        setp.lt.u32 %p2, %r5, 12; @%p2 bra SPIN;
        WAIT: bar.sync 0;
        add.u32 %r6, %r1, 1; rem.u32 %r6, %r6, 12; mad.lo.u32 %r6, %r6, %r2, %r3;
        mad.wide.u32 %rd7, %r6, 4, %rd1;
        ld.global.u32 %r7, [%rd7]; mad.wide.u32 %rd8, %r0, 4, %rd2; st.global.u32 [%rd8+4], %r7;";
    let program = decode(&kernel(body)).unwrap();
    for (threads, seed) in [(1, 0), (2, 0), (8, 5)] {
        for races in [false, true] {
            let bench = Bench::new(&bytes_of(&[0; 12 * 64 + 1]), 4 * 12 * 64);
            let (grid, block) = ([12, 1, 1], [64, 1, 1]);
            let launch = Launch { grid, block, threads, seed, races, ..Launch::default() };
            bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
            let source = u64::from_le_bytes(bench.params[8..].try_into().unwrap());
            let mut found = vec![0; 4 * 12 * 64];
            bench.memory.read(source + 4, &mut found).unwrap();
            assert!(words(&found).into_iter().eq((0..12 * 64).map(|i| (i / 64 + 1) % 12)));
        }
    }
}

#[test]
fn a_lane_and_a_warp_may_wait_for_another_one() {
    let body = |waits: &str, raises: &str| {
        format!(
            "{waits} @%p1 bra WAIT;
            {raises}
            @%p2 st.global.u32 [%rd2], 7; bra END;
            WAIT: ld.volatile.global.u32 %r5, [%rd2];
            setp.eq.u32 %p3, %r5, 0; @%p3 bra WAIT;
            END: st.global.u32 [%rd3], 1;"
        )
    };
    let all = "setp.eq.u32 %p2, 0, 0;";
    let cases = [("setp.eq.u32 %p1, %r3, 3;", 32), ("setp.lt.u32 %p1, %r3, 32;", 64)];
    for (waits, threads) in cases {
        let program = decode(&kernel(&body(waits, all))).unwrap();
        for seed in 0..4 {
            let bench = Bench::new(&[0; 4], 4 * threads as usize);
            let launch = Launch { block: [threads, 1, 1], seed, ..Launch::default() };
            bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(words(&bench.output()), vec![1; threads as usize]);
        }
    }
}

/// The set of last writers over seeds.
fn last_writers(body: &str, block: u32) -> std::collections::BTreeSet<u32> {
    let program = decode(&kernel(body)).unwrap();
    let run = |seed| {
        let bench = Bench::new(&[0; 4], 4);
        let launch = Launch { grid: [2, 1, 1], block: [block, 1, 1], seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap();
        words(&bench.output())[0]
    };
    (0..64).map(run).collect()
}

#[test]
fn seeds_vary_the_order_of_blocks_warps_and_lanes() {
    assert_eq!(last_writers("st.global.u32 [%rd1], %r1;", 32).len(), 2);
    let warps = "shr.u32 %r4, %r3, 5; st.global.u32 [%rd1], %r4;";
    assert_eq!(last_writers(warps, 64).len(), 2);
    let lanes = "setp.lt.u32 %p1, %r3, 16; @%p1 bra LOW;
        st.global.u32 [%rd1], 1; bra END;
        LOW: add.u32 %r4, %r3, 1; st.global.u32 [%rd1], 0;
        END: add.u32 %r4, %r3, 1;";
    assert_eq!(last_writers(lanes, 32).len(), 2);
}

#[test]
fn the_first_fault_is_reported_for_any_number_of_threads() {
    let body = "LOOP: add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 1000;
        mov.u32 %r6, %r5;
        setp.ge.u32 %p2, %r1, 70;
        @%p2 trap;
        add.u32 %r7, %r7, 1;
        setp.lt.u32 %p3, %r7, 300;
        @%p3 bra LOOP;";
    let program = decode(&kernel(&format!("mov.u32 %r7, 0; mov.u32 %r5, 0; {body}"))).unwrap();
    for threads in [1, 2, 4] {
        let bench = Bench::new(&[0; 4], 4);
        let launch = Launch { grid: [100, 1, 1], block: [32, 1, 1], threads, ..Launch::default() };
        let fault = bench.launch(&program, launch).unwrap_err();
        assert_eq!((fault.kind, fault.site.block), (FaultKind::Trap, [70, 0, 0]));
    }
}

#[test]
fn every_order_runs_every_block_once() {
    let body = "mad.wide.u32 %rd7, %r1, 4, %rd1; ld.global.u32 %r5, [%rd7];
        add.u32 %r5, %r5, 1; st.global.u32 [%rd7], %r5;";
    let program = decode(&kernel(body)).unwrap();
    for blocks in [1, 2, 12, 97, 1000] {
        for seed in 0..20 {
            let bench = Bench::new(&[], 4 * blocks as usize);
            bench.memory.fill(bench.out, &[0], 4 * u64::from(blocks)).unwrap();
            let launch = Launch { grid: [blocks, 1, 1], seed, threads: 2, ..Launch::default() };
            bench.launch(&program, launch).unwrap();
            let counts = words(&bench.output());
            assert!(counts.into_iter().all(|count| count == 1), "{blocks} blocks, seed {seed}");
        }
    }
}

#[test]
fn coordinates_have_three_axes() {
    let body = "mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z;
        mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z;
        mov.u32 %r8, %ntid.y; mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y;
        mad.lo.u32 %r11, %r7, %r10, %r6;
        mad.lo.u32 %r11, %r11, %r9, %r1;
        mov.u32 %r12, %ntid.z;
        mad.lo.u32 %r11, %r11, %r12, %r5;
        mad.lo.u32 %r11, %r11, %r8, %r4;
        mad.lo.u32 %r11, %r11, %r2, %r3;
        mad.wide.u32 %rd7, %r11, 4, %rd1;
        st.global.u32 [%rd7], %r11;";
    let program = decode(&kernel(body)).unwrap();
    let (grid, block) = ([3, 2, 2], [5, 3, 2]);
    let bench = Bench::new(&[0; 4], 4 * 360);
    bench.launch(&program, Launch { grid, block, seed: 3, ..Launch::default() }).unwrap();
    assert!(words(&bench.output()).into_iter().eq(0..360));
}

#[test]
fn dynamic_shared_memory_follows_the_static_part() {
    let text = kernel_with(
        ".shared .align 4 .b32 fixed[3];",
        "mov.u32 %r4, heap;
        mad.lo.u32 %r5, %r3, 4, %r4;
        st.shared.u32 [fixed], 1;
        st.shared.u32 [%r5], %r3;
        st.global.u32 [%rd3], %r4;",
    );
    let text =
        text.replace(".visible .entry", ".extern .shared .align 16 .b8 heap[];\n.visible .entry");
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let program = Program::decode(&module, "k", &|_| None).unwrap();
    assert_eq!(program.shared_bytes(), 16);
    let run = |shared_bytes| {
        let bench = Bench::new(&[0; 4], 128);
        let launch = Launch { block: [32, 1, 1], shared_bytes, ..Launch::default() };
        bench.launch(&program, launch).map(|_| words(&bench.output())[0])
    };
    assert_eq!(run(128), Ok(16));
    let fault = |fault: Fault| matches!(fault.kind, FaultKind::OutOfBounds { .. });
    assert!(run(64).is_err_and(fault));
}

#[test]
fn variables_of_the_module_need_addresses() {
    let text = kernel("ld.global.u32 %r4, [table+4]; st.global.u32 [%rd1], %r4;");
    let text = text.replace(".visible .entry", ".global .align 4 .u32 table[2];\n.visible .entry");
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    assert!(Program::decode(&module, "k", &|_| None).is_err());
    let bench = Bench::new(&bytes_of(&[5, 6]), 4);
    let source = u64::from_le_bytes(bench.params[8..].try_into().unwrap());
    let place = |name: &str| (name == "table").then_some(source);
    let program = Program::decode(&module, "k", &place).unwrap();
    bench.launch(&program, Launch::default()).unwrap();
    assert_eq!(words(&bench.output()), [6]);
}

#[test]
fn a_launch_without_threads_does_nothing() {
    let bench = Bench::new(&[0; 4], 4);
    let launch = Launch { grid: [0, 1, 1], ..Launch::default() };
    assert_eq!(bench.launch(&uneven(), launch).unwrap().blocks, 0);
}

/// A kernel in which each `SYNC` of `body` is a grid barrier. It declares the functions of
/// libcudadevrt by their linker names.
fn with_grid_barriers(declarations: &str, body: &str) -> String {
    let sync = "{ .param .b32 scope; .param .b64 handle; .param .b32 flags; .param .b32 code;
        .reg .b64 %grid; st.param.b32 [scope], 1;
        call.uni (handle), libcudadevrt$cudaCGGetIntrinsicHandle, (scope);
        ld.param.b64 %grid, [handle]; st.param.b64 [handle], %grid; st.param.b32 [flags], 0;
        call.uni (code), libcudadevrt$cudaCGSynchronize, (handle, flags); }";
    let text = kernel_with(declarations, &body.replace("SYNC", sync));
    let declared = ".extern .func (.param .b64 r) libcudadevrt$cudaCGGetIntrinsicHandle \
        (.param .b32 a);
        .extern .func (.param .b32 r) libcudadevrt$cudaCGSynchronize \
        (.param .b64 a, .param .b32 b);
        .visible .entry";
    text.replace(".visible .entry", declared)
}

#[test]
fn a_grid_barrier_orders_all_blocks() {
    // Three times, each thread adds its neighbour's value of the previous round, in another block.
    let body = "st.global.u32 [%rd3], %r1; mov.u32 %r10, 0;
        add.u32 %r6, %r1, 1; mov.u32 %r5, %nctaid.x; rem.u32 %r6, %r6, %r5;
        mad.lo.u32 %r6, %r6, %r2, %r3; mad.wide.u32 %rd7, %r6, 4, %rd1;
        LOOP: SYNC
        ld.global.u32 %r7, [%rd7]; ld.global.u32 %r8, [%rd3];
        SYNC
        add.u32 %r7, %r7, %r8; st.global.u32 [%rd3], %r7;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra LOOP;";
    let program = decode(&with_grid_barriers("", body)).unwrap();
    // More blocks than the maximum of resident blocks without a grid barrier.
    let blocks = 1100u32;
    let expected = |block: u32| {
        let at = |distance: u32| (block + distance) % blocks;
        at(0) + 3 * at(1) + 3 * at(2) + at(3)
    };
    for (threads, seed, cluster) in [(1, 0, 1), (2, 0, 1), (8, 5, 1), (1, 9, 2)] {
        let bench = Bench::new(&[0; 4], 4 * 64 * blocks as usize);
        let (grid, block, cluster) = ([blocks, 1, 1], [64, 1, 1], [cluster, 1, 1]);
        let is_cooperative = true;
        let launch =
            Launch { grid, block, cluster, is_cooperative, threads, seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap_or_else(|fault| panic!("{fault}"));
        let found = words(&bench.output());
        assert!(found.into_iter().eq((0..64 * blocks).map(|i| expected(i / 64))), "seed {seed}");
    }
}

#[test]
fn a_grid_barrier_orders_accesses_for_the_race_detector() {
    let neighbour = "xor.b32 %r6, %r0, 64; mad.wide.u32 %rd7, %r6, 4, %rd1;";
    let run = |body: String| {
        let program = decode(&with_grid_barriers("", &body)).unwrap();
        let bench = Bench::new(&[0; 4], 4 * 128);
        let (grid, block) = ([2, 1, 1], [64, 1, 1]);
        let launch = Launch { grid, block, is_cooperative: true, races: true, ..Launch::default() };
        bench.launch(&program, launch).map_err(|fault| fault.kind)
    };
    let ordered = "st.global.u32 [%rd3], 1; SYNC ld.global.u32 %r7, [%rd7];
        add.u32 %r7, %r7, %r0; SYNC st.global.u32 [%rd7], %r7;";
    run(format!("{neighbour} {ordered}")).unwrap();
    for racing in ["ld.global.u32 %r7, [%rd7];", "SYNC ld.global.u32 %r7, [%rd7];"] {
        let body = format!("{neighbour} {racing} st.global.u32 [%rd3], 7;");
        assert!(matches!(run(body).unwrap_err(), FaultKind::Race { .. }), "{racing}");
    }
}

#[test]
fn a_grid_barrier_that_a_block_skips_is_a_deadlock() {
    let program = |body: &str| decode(&with_grid_barriers("", body)).unwrap();
    let run = |body: &str, cluster| {
        let bench = Bench::new(&[0; 4], 4);
        let (grid, block, cluster) = ([4, 1, 1], [64, 1, 1], [cluster, 1, 1]);
        let launch = Launch { grid, block, cluster, is_cooperative: true, ..Launch::default() };
        bench.launch(&program(body), launch).unwrap_err()
    };
    let skips = "setp.eq.u32 %p1, %r1, 0; @%p1 bra END; SYNC END:";
    for cluster in [1, 2] {
        let fault = run(skips, cluster);
        let text = fault.to_string();
        assert!(text.contains("warp 1 waits at the barrier of the grid"), "{text}");
        assert!(text.contains("1 block(s) of the grid ended without it"), "{text}");
        assert!(text.contains("libcudadevrt$cudaCGSynchronize"), "{text}");
    }
    // Half of a block waits for the other half, which waits for the grid.
    let fault = run("setp.lt.u32 %p1, %r3, 32; @%p1 bra HALF; SYNC HALF: bar.sync 0;", 1);
    let FaultKind::Deadlock { waiting } = fault.kind else { panic!("{fault}") };
    assert!(waiting.contains("warp 0 waits at barrier 0 for all threads; warp 1"), "{waiting}");
}

#[test]
fn a_grid_barrier_needs_a_cooperative_launch_and_its_handle() {
    let code_of = |text: &str, is_cooperative| {
        let bench = Bench::new(&[0; 4], 4);
        let launch = Launch { is_cooperative, ..Launch::default() };
        bench.launch(&decode(text).unwrap(), launch).map_err(|fault| fault.kind)?;
        Ok(words(&bench.output())[0])
    };
    let read = "ld.param.b32 %r7, [code]; st.global.u32 [%rd3], %r7; }";
    let body = with_grid_barriers("", "SYNC").replace("(handle, flags); }", "(handle, flags);");
    let body = body.replacen("(handle, flags);", &format!("(handle, flags); {read}"), 1);
    assert_eq!(code_of(&body, true), Ok(0));
    // Recorded on an H200: the handle is 0, and the call rejects it.
    assert_eq!(code_of(&body, false), Ok(999));
    let multi = body.replace("[scope], 1", "[scope], 2");
    assert_eq!(code_of(&multi, true), Ok(999), "the scope of several grids");
    let other = body.replace("[handle], %grid", "[handle], 8");
    let refused = Err(FaultKind::Undefined(Undefined::GridBarrier));
    assert_eq!(code_of(&other, true), refused);
}

#[test]
fn a_block_may_poll_an_mbarrier_and_a_flag_of_another_block() {
    let run = |last: &str, seed| {
        let body = format!(
            "mov.u32 %r5, bar;
            setp.ne.u32 %p1, %r1, 0;
            @%p1 bra SET;
            mbarrier.init.shared.b64 [%r5], 1;
            LOOP: mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 0;
            @%p2 bra DONE;
            ld.volatile.global.u32 %r6, [%rd1];
            setp.ne.u32 %p3, %r6, 9;
            @%p3 bra LOOP;
            st.global.u32 [%rd1+4], 1;
            bra DONE;
            SET: mov.u32 %r7, 100000;
            WORK: sub.u32 %r7, %r7, 1;
            setp.ne.u32 %p4, %r7, 0;
            @%p4 bra WORK;
            {last}
            DONE:"
        );
        let text = kernel_with(".shared .align 8 .b64 bar;", &body);
        let bench = Bench::new(&[], 8);
        let launch = Launch { grid: [2, 1, 1], seed, ..Launch::default() };
        bench.launch(&decode(&text).unwrap(), launch).map(|_| words(&bench.output()))
    };
    for seed in 0..4 {
        assert_eq!(run("st.volatile.global.u32 [%rd1], 9;", seed).unwrap(), [9, 1]);
        // Without the store, the first block waits forever.
        let fault = run("", seed).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
    }
}
