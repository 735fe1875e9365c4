//! Accesses to the shared memory of other blocks of a cluster.

use retrograph_ptx_exec::{Fault, FaultKind, HostIsa, Launch, ProxyMisuse};

use super::{Bench, bytes_of, decode, kernel_with, words};

const SYNC: &str = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";
/// Threads of a block.
const THREADS: u32 = 64;

/// A kernel with these registers:
/// - `%r5`, `%rd7`: the address of the thread's word in `tile`, in shared memory and generic;
/// - `%r6`, `%rd8`: the address of that word in the next block of the cluster;
/// - `%r10`, `%r11`: the ranks of the block and of the next block.
fn text(body: &str) -> String {
    let addresses = "mov.u32 %r4, tile; mad.lo.u32 %r5, %r3, 4, %r4;
        mov.u32 %r10, %cluster_ctarank; mov.u32 %r12, %cluster_nctarank;
        add.u32 %r11, %r10, 1; rem.u32 %r11, %r11, %r12;
        mapa.shared::cluster.u32 %r6, %r5, %r11;
        cvt.u64.u32 %rd7, %r5; cvta.shared.u64 %rd7, %rd7; mapa.u64 %rd8, %rd7, %r11;";
    let body = body.replace("SYNC", SYNC);
    kernel_with(".shared .align 16 .b8 tile[256];", &format!("{addresses} {body}"))
}

/// Runs two clusters of `blocks` blocks. Each thread has a word of output.
fn run(body: &str, blocks: u32, launch: Launch<'_>) -> Result<Vec<u32>, Fault> {
    let program = decode(&text(body)).unwrap_or_else(|error| panic!("{error}"));
    let bench = Bench::new(&[0; 64], (8 * blocks * THREADS) as usize);
    let (grid, cluster, block) = ([2 * blocks, 1, 1], [blocks, 1, 1], [THREADS, 1, 1]);
    let step_limit = 1 << 22;
    bench.launch(&program, Launch { grid, cluster, block, step_limit, ..launch })?;
    Ok(words(&bench.output()))
}

fn kind_of(body: &str) -> FaultKind {
    run(body, 2, Launch::default()).expect_err("no fault").kind
}

/// The number that thread `index` of all threads finds in the next block of its cluster.
fn of_next_block(index: u32, blocks: u32) -> u32 {
    let (block, thread) = (index / THREADS, index % THREADS);
    let first = block / blocks * blocks;
    (first + (block - first + 1) % blocks) * THREADS + thread
}

#[test]
fn a_block_reads_the_shared_memory_of_another() {
    let loads = [
        "ld.shared::cluster.u32 %r7, [%r6];",
        "ld.u32 %r7, [%rd8];",
        "ld.volatile.shared::cluster.u32 %r7, [%r6];",
        "atom.shared::cluster.add.u32 %r7, [%r6], 0;",
        "and.b32 %r8, %r6, 0xfffffff0; ld.shared::cluster.v4.u32 {%r20, %r21, %r22, %r23}, [%r8];
         and.b32 %r9, %r3, 3; setp.eq.u32 %p1, %r9, 1; setp.eq.u32 %p2, %r9, 2;
         setp.eq.u32 %p3, %r9, 3; mov.u32 %r7, %r20; @%p1 mov.u32 %r7, %r21;
         @%p2 mov.u32 %r7, %r22; @%p3 mov.u32 %r7, %r23;",
        "ld.shared::cluster.u16 %r7, [%r6]; ld.shared::cluster.u16 %r8, [%r6+2];
         shl.b32 %r8, %r8, 16; or.b32 %r7, %r7, %r8;",
    ];
    for (load, blocks) in loads.iter().zip([2, 2, 3, 4, 2, 8]) {
        let body = format!(
            "st.shared.u32 [%r5], %r0; SYNC {load} SYNC st.global.u32 [%rd3], %r7;
             st.shared.u32 [%r5], 0;"
        );
        for (seed, races) in [(0, false), (1, false), (2, true), (0, true)] {
            let launch = Launch { seed, races, threads: 2, ..Launch::default() };
            let found = run(&body, blocks, launch).unwrap_or_else(|fault| panic!("{load} {fault}"));
            let want: Vec<_> =
                (0..2 * blocks * THREADS).map(|index| of_next_block(index, blocks)).collect();
            assert_eq!(found, want, "{load}");
        }
    }
}

#[test]
fn a_block_writes_the_shared_memory_of_another() {
    let stores = [
        "st.shared::cluster.u32 [%r6], %r0;",
        "st.u32 [%rd8], %r0;",
        "red.shared::cluster.add.u32 [%r6], %r0;",
        "atom.exch.b32 %r9, [%rd8], %r0;",
    ];
    for store in stores {
        let body = format!(
            "st.shared.u32 [%r5], 0; SYNC {store} SYNC ld.shared.u32 %r7, [%r5];
             st.global.u32 [%rd3], %r7;"
        );
        for races in [false, true] {
            let found = run(&body, 2, Launch { races, ..Launch::default() })
                .unwrap_or_else(|fault| panic!("{store} {fault}"));
            // Of two blocks, the next one is also the one before.
            let want: Vec<_> = (0..4 * THREADS).map(|index| of_next_block(index, 2)).collect();
            assert_eq!(found, want, "{store}");
        }
    }
}

#[test]
fn every_interpreter_gives_the_same_results() {
    let body = "st.shared.u32 [%r5], %r0; SYNC ld.shared::cluster.u32 %r7, [%r6];
        st.shared::cluster.u32 [%r6], %r7; SYNC ld.shared.u32 %r7, [%r5];
        st.global.u32 [%rd3], %r7;";
    let program = decode(&text(body)).unwrap();
    for isa in HostIsa::supported() {
        let bench = Bench::new(&[0; 64], (4 * 2 * THREADS) as usize);
        let (grid, cluster, block) = ([2, 1, 1], [2, 1, 1], [THREADS, 1, 1]);
        let request = Launch { grid, cluster, block, isa: Some(isa), ..Launch::default() };
        bench.launch(&program, request).unwrap();
        assert_eq!(bench.output(), bytes_of(&(0..2 * THREADS).collect::<Vec<_>>()));
    }
}

#[test]
fn addresses_tell_their_block() {
    let body = "getctarank.shared::cluster.u32 %r20, %r6; getctarank.u64 %r21, %rd8;
        getctarank.shared::cluster.u32 %r22, %r5;
        isspacep.shared::cluster %p1, %rd8; isspacep.shared %p2, %rd8; isspacep.shared %p3, %rd7;
        selp.u32 %r23, 1, 0, %p1; selp.u32 %r24, 2, 0, %p2; selp.u32 %r25, 4, 0, %p3;
        mad.lo.u32 %r7, %r20, 10, %r21; mad.lo.u32 %r7, %r7, 10, %r22;
        mad.lo.u32 %r7, %r7, 10, %r23; add.u32 %r7, %r7, %r24; add.u32 %r7, %r7, %r25;
        st.global.u32 [%rd3], %r7;";
    let found = run(body, 3, Launch::default()).unwrap_or_else(|fault| panic!("{fault}"));
    let of_block = |block: usize| found[block * THREADS as usize];
    assert_eq!([0, 1, 2].map(of_block), [1105, 2215, 25]);
    let outside = kind_of("getctarank.u64 %r7, %rd1;");
    assert!(matches!(outside, FaultKind::AsyncProxy(_)), "{outside}");
}

/// A block waits for a flag in its own shared memory that another block sets.
#[test]
fn a_block_waits_for_a_flag_that_another_sets() {
    let body = "st.shared.u32 [%r5], 0; SYNC
        setp.eq.u32 %p1, %r10, 0; @%p1 bra SETS;
        WAITS: ld.volatile.shared.u32 %r7, [%r5]; setp.eq.u32 %p2, %r7, 0; @%p2 bra WAITS;
        SETS: st.volatile.shared::cluster.u32 [%r6], 5; SYNC st.global.u32 [%rd3], %r7;";
    for seed in 0..4 {
        run(body, 3, Launch { seed, ..Launch::default() }).unwrap_or_else(|f| panic!("{f}"));
    }
}

#[test]
fn only_cluster_and_generic_addresses_reach_other_blocks() {
    for access in [
        "ld.shared.u32 %r7, [%r6];",
        "st.shared::cta.u32 [%r6], 1;",
        "red.shared.add.u32 [%r6], 1;",
    ] {
        let kind = kind_of(&format!("st.shared.u32 [%r5], 0; SYNC {access} SYNC"));
        assert!(matches!(kind, FaultKind::OtherBlock { bytes: 4, .. }), "{access} {kind}");
    }
    let past_the_end = "st.shared.u32 [%r5], 0; SYNC ld.shared::cluster.u32 %r7, [%r6+256]; SYNC";
    assert!(matches!(kind_of(past_the_end), FaultKind::OutOfBounds { bytes: 4, .. }));
    let misaligned = "st.shared.u32 [%r5], 0; SYNC ld.shared::cluster.u32 %r7, [%r6+1]; SYNC";
    assert!(matches!(kind_of(misaligned), FaultKind::Misaligned { bytes: 4, .. }));
}

#[test]
fn the_shared_memory_of_a_block_that_has_ended_is_not_accessed() {
    let body = "st.shared.u32 [%r5], 0; SYNC setp.eq.u32 %p1, %r10, 0; @%p1 exit;
        WAITS: ld.shared::cluster.u32 %r7, [%r6]; bra WAITS;";
    match kind_of(body) {
        FaultKind::AsyncProxy(misuse) => {
            assert_eq!(*misuse, ProxyMisuse::ClusterBlockEnded { rank: 0 });
        }
        other => panic!("{other}"),
    }
}

#[test]
fn races_between_blocks_of_a_cluster_are_found() {
    let watch = |body: &str| {
        let launch = Launch { races: true, ..Launch::default() };
        run(body, 2, launch).map_err(|fault| fault.kind)
    };
    let racing = [
        // No barrier between the store and the load of the other block.
        "st.shared.u32 [%r5], %r0; ld.shared::cluster.u32 %r7, [%r6];",
        // The barrier of the block does not order other blocks.
        "st.shared.u32 [%r5], %r0; bar.sync 0; ld.shared::cluster.u32 %r7, [%r6];",
        // The next store does not wait for the load of the other block.
        "st.shared.u32 [%r5], %r0; SYNC ld.shared::cluster.u32 %r7, [%r6]; st.shared.u32 [%r5], 9;",
        // Global memory, without a barrier.
        "st.global.u32 [%rd3], %r0; xor.b32 %r8, %r0, 64; mad.wide.u32 %rd9, %r8, 4, %rd1;
         ld.global.u32 %r7, [%rd9];",
    ];
    for body in racing {
        // All blocks stay until the others have accessed their memory.
        let kind = watch(&format!("{body} SYNC")).expect_err(body);
        assert!(matches!(kind, FaultKind::Race { .. }), "{body} {kind}");
    }
    let ordered = [
        "st.shared.u32 [%r5], %r0; SYNC ld.shared::cluster.u32 %r7, [%r6]; SYNC
         st.shared.u32 [%r5], 9;",
        "st.global.u32 [%rd3], %r0; xor.b32 %r8, %r0, 64; mad.wide.u32 %rd9, %r8, 4, %rd1; SYNC
         ld.global.u32 %r7, [%rd9]; SYNC st.global.u32 [%rd3], 9;",
        "st.shared.u32 [%r5], %r0; SYNC red.shared::cluster.add.u32 [%r6], 1; SYNC",
    ];
    for body in ordered {
        watch(&format!("{body} SYNC")).unwrap_or_else(|kind| panic!("{body} {kind}"));
    }
}

/// An arrival at an mbarrier of another block orders what comes before it.
#[test]
fn an_arrival_at_an_mbarrier_of_another_block_orders_accesses() {
    let run = |wait: &str| {
        let body = format!(
            "mov.u32 %r13, full; mapa.shared::cluster.u32 %r14, %r13, 1;
             setp.eq.u32 %p1, %r3, 0; @%p1 mbarrier.init.shared.b64 [%r13], 64; SYNC
             setp.eq.u32 %p2, %r10, 1; @%p2 bra WAITS;
             st.shared::cluster.u32 [%r6], %r0;
             mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14]; bra END;
             WAITS: {wait} ld.shared.u32 %r7, [%r5]; st.global.u32 [%rd3], %r7;
             END: SYNC"
        );
        let text = text(&body).replace("tile[256];", "tile[256]; .shared .b64 full;");
        let program = decode(&text).unwrap_or_else(|error| panic!("{error}"));
        let bench = Bench::new(&[0; 64], (4 * 2 * THREADS) as usize);
        let (grid, cluster, block) = ([2, 1, 1], [2, 1, 1], [THREADS, 1, 1]);
        let launch = Launch { grid, cluster, block, races: true, ..Launch::default() };
        bench.launch(&program, launch).map_err(|fault| fault.kind)?;
        Ok::<_, FaultKind>(words(&bench.output()))
    };
    let waits = "TRY: mbarrier.try_wait.parity.shared.b64 %p3, [%r13], 0; @!%p3 bra TRY;";
    let found = run(waits).unwrap_or_else(|kind| panic!("{kind}"));
    assert!(found[THREADS as usize..].iter().copied().eq(0..THREADS));
    assert!(matches!(run(""), Err(FaultKind::Race { .. })));
}
