//! Branches, loops, barriers and the lives of registers.

use retrograph_ptx_exec::Launch;
use retrograph_ptx_exec::memory::POISON;

use super::{Bench, binary, bytes_of, decode, kernel, kernel_with, run_text, words};

#[test]
fn both_sides_of_a_branch_are_taken() {
    let body = "setp.lt.u32 %p1, %r7, %r8;
        @%p1 bra LESS;
        sub.u32 %r9, %r7, %r8;
        bra.uni DONE;
        LESS: sub.u32 %r9, %r8, %r7;
        DONE: add.u32 %r9, %r9, 1;";
    let pairs: Vec<(u32, u32)> = (0..70).map(|i| (i, 35)).collect();
    let want: Vec<u32> = (0..70u32).map(|i| i.abs_diff(35) + 1).collect();
    assert_eq!(binary(body, &pairs), want);
}

#[test]
fn lanes_leave_a_loop_separately() {
    // Collatz steps: every lane has its own count.
    let body = "mov.u32 %r9, 0;
        LOOP: setp.le.u32 %p1, %r7, 1;
        @%p1 bra END;
        and.b32 %r5, %r7, 1;
        setp.eq.u32 %p2, %r5, 0;
        @%p2 shr.u32 %r7, %r7, 1;
        @!%p2 mad.lo.u32 %r7, %r7, 3, 1;
        add.u32 %r9, %r9, 1;
        bra LOOP;
        END: add.u32 %r9, %r9, 0;";
    let collatz = |mut n: u32| {
        let mut steps = 0;
        while n > 1 {
            n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    let pairs: Vec<(u32, u32)> = (1..50).map(|i| (i, 0)).collect();
    let want: Vec<u32> = (1..50).map(collatz).collect();
    assert_eq!(binary(body, &pairs), want);
}

#[test]
fn lanes_may_exit_early() {
    let body = "st.global.u32 [%rd3], 1;
        setp.ge.u32 %p1, %r0, 20;
        @%p1 ret;
        st.global.u32 [%rd3], 2;
        setp.lt.u32 %p2, %r0, 10;
        @%p2 bra OUT;
        st.global.u32 [%rd3], 3;
        OUT: bar.sync 0;";
    let out = words(&run_text(&kernel(body), 40, &[], 160));
    let want = (0..40).map(|i| {
        if i >= 20 {
            1
        } else if i < 10 {
            2
        } else {
            3
        }
    });
    assert!(out.into_iter().eq(want));
}

#[test]
fn a_block_sum_by_halving() {
    let body = "mov.u32 %r4, tile;
        mad.lo.u32 %r5, %r0, 4, %r4;
        ld.global.f32 %f1, [%rd4];
        st.shared.f32 [%r5], %f1;
        mov.u32 %r6, 64;
        AGAIN: bar.sync 0;
        setp.lt.u32 %p1, %r0, %r6;
        @!%p1 bra SKIP;
        mad.lo.u32 %r7, %r6, 4, %r5;
        ld.shared.f32 %f2, [%r7];
        ld.shared.f32 %f1, [%r5];
        add.rn.f32 %f1, %f1, %f2;
        st.shared.f32 [%r5], %f1;
        SKIP: shr.u32 %r6, %r6, 1;
        setp.ne.u32 %p2, %r6, 0;
        @%p2 bra AGAIN;
        bar.sync 0;
        ld.shared.f32 %f3, [tile];
        st.global.f32 [%rd3], %f3;";
    let input: Vec<u32> = (0..128).map(|i| (i as f32).to_bits()).collect();
    let text = kernel_with(".shared .align 4 .f32 tile[128];", body);
    let out = words(&run_text(&text, 128, &bytes_of(&input), 512));
    assert!(out.iter().all(|&word| f32::from_bits(word) == 8128.0));
}

#[test]
fn barriers_have_numbers_and_counts() {
    // The first warp arrives at barrier 1 and continues; the second waits for it.
    let body = "mov.u32 %r4, %warpid;
        setp.eq.u32 %p1, %r4, 0;
        @!%p1 bra CONSUMER;
        st.shared.u32 [flag], 42;
        bar.arrive 1, 64;
        bra.uni END;
        CONSUMER: bar.sync 1, 64;
        ld.shared.u32 %r5, [flag];
        st.global.u32 [%rd1], %r5;
        END: bar.sync 0;";
    let text = kernel_with(".shared .align 4 .u32 flag;", body);
    assert_eq!(words(&run_text(&text, 64, &[], 4)), [42]);
}

#[test]
fn a_lane_may_spin_for_another() {
    // Lane 0 waits until lane 1, at a later instruction, has set the flag.
    let body = "st.shared.u32 [flag], 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra SETTER;
        SPIN: ld.volatile.shared.u32 %r5, [flag];
        setp.eq.u32 %p2, %r5, 0;
        @%p2 bra SPIN;
        st.global.u32 [%rd1], %r5;
        bra END;
        SETTER: st.volatile.shared.u32 [flag], 7;
        END: add.u32 %r9, %r0, 1;";
    let text = kernel_with(".shared .align 4 .u32 flag;", body);
    assert_eq!(words(&run_text(&text, 2, &[], 4)), [7]);
}

#[test]
fn a_barrier_does_not_wait_for_lanes_that_exit() {
    // The lower lanes reach the barrier first, and the other lanes end without it.
    let body = "setp.ge.u32 %p1, %r0, 8; @%p1 bra OUT;
        bar.sync 0; st.global.u32 [%rd3], 1; ret;
        OUT: st.global.u32 [%rd3], 2;";
    let out = words(&run_text(&kernel(body), 32, &[], 128));
    assert!(out.into_iter().eq((0..32).map(|lane| if lane < 8 { 1 } else { 2 })));
}

#[test]
fn values_live_across_a_loop_keep_their_registers() {
    // The last use of %r10 to %r25 in the text is before the first one of %r30 to %r37, but the
    // next iteration reads them again.
    let each = |range: std::ops::Range<u32>, what: &dyn Fn(u32) -> String| -> String {
        range.map(what).collect::<Vec<_>>().join(" ")
    };
    let body = format!(
        "mov.u32 %r9, %r8; mov.u32 %r5, 0; {}
        LOOP: {} {} {}
        add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra LOOP;",
        each(0..16, &|i| format!("mad.lo.u32 %r{}, %r7, {}, {i};", 10 + i, i + 3)),
        each(0..16, &|i| format!("mad.lo.u32 %r9, %r9, 3, %r{};", 10 + i)),
        each(0..8, &|i| format!("add.u32 %r{}, %r9, {i};", 30 + i)),
        each(0..8, &|i| format!("xor.b32 %r9, %r9, %r{};", 30 + i)),
    );
    let run = |a: u32, b: u32| {
        (0..5).fold(b, |sum, _| {
            let sum = (0..16).fold(sum, |sum, i| {
                sum.wrapping_mul(3).wrapping_add(a.wrapping_mul(i + 3).wrapping_add(i))
            });
            (0..8).fold(sum, |mixed, i| mixed ^ sum.wrapping_add(i))
        })
    };
    let pairs: Vec<(u32, u32)> = (0..40).map(|i| (i * 77, i)).collect();
    let want: Vec<u32> = pairs.iter().map(|&(a, b)| run(a, b)).collect();
    assert_eq!(binary(&body, &pairs), want);
}

#[test]
fn a_chain_of_values_needs_two_registers() {
    let chain: String = (1..50).map(|i| format!("add.u32 %r{i}, %r{0}, %r{0};\n", i - 1)).collect();
    let text = format!(
        ".version 8.1\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u32 x) {{ .reg .b32 %r<50>;
        ld.param.u32 %r0, [x]; {chain} ret; }}"
    );
    assert_eq!(decode(&text).unwrap().registers(), 2);
}

#[test]
fn a_register_that_no_path_has_written_is_poison() {
    let body = "setp.lt.u32 %p1, %r0, 4; @%p1 mov.u32 %r9, 7; st.global.u32 [%rd3], %r9;";
    let out = words(&run_text(&kernel(body), 32, &[], 128));
    assert!(out.into_iter().eq((0..32).map(|lane| if lane < 4 { 7 } else { POISON })));
}

/// Two warps meet at a barrier several times, and then write; a third one reads. Without a delay,
/// it reads in the first round.
#[test]
fn a_seed_may_delay_a_warp_until_the_others_have_ended() {
    let meet = "bar.sync 1, 64;\n".repeat(6);
    let body = format!(
        "mov.u32 %r5, flag;
        setp.ge.u32 %p1, %r3, 64;
        @%p1 bra READ;
        {meet}
        st.shared.u32 [%r5], 7;
        ret;
        READ: ld.shared.u32 %r6, [%r5];
        st.global.u32 [%rd3], %r6;"
    );
    let program = decode(&kernel_with(".shared .align 4 .b32 flag;", &body)).unwrap();
    let read = |seed| {
        let bench = Bench::new(&[], 96 * 4);
        let launch = Launch { block: [96, 1, 1], seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap();
        words(&bench.output())[64]
    };
    let found: Vec<_> = (0..64).map(read).collect();
    assert_eq!(found[0], POISON, "in ascending order");
    assert!(found.contains(&7) && found[1..].contains(&POISON), "{found:?}");
    assert_eq!(found, (0..64).map(read).collect::<Vec<_>>(), "a seed repeats its order");
}
