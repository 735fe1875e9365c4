//! Branches, loops and barriers.

use super::{binary, bytes_of, kernel, kernel_with, run_text, words};

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
