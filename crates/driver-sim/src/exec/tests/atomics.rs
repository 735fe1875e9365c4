//! Atomics.

use super::{Bench, Launch, decode, kernel, kernel_with, run_text, words};

#[test]
fn lanes_add_in_order() {
    let body = "atom.global.add.u32 %r9, [%rd1], 2;
        add.u64 %rd7, %rd3, 4;
        st.global.u32 [%rd7], %r9;";
    let text = kernel(body);
    let program = decode(&text).unwrap();
    let bench = Bench::new(&[], 4 * 65);
    bench.memory.fill(bench.out, &[0], 4).unwrap();
    bench.launch(&program, Launch { block: [64, 1, 1], ..Launch::default() }).unwrap();
    let out = words(&bench.output());
    assert_eq!(out[0], 128);
    assert!(out[1..].iter().copied().eq((0..64).map(|lane| 2 * lane)));
}

#[test]
fn reductions_in_shared_memory() {
    let body = "setp.eq.u32 %p1, %r0, 0;
        @%p1 st.shared.f32 [sum], 0f00000000;
        @%p1 st.shared.u32 [most], 0;
        bar.sync 0;
        cvt.rn.f32.u32 %f1, %r0;
        red.shared.add.f32 [sum], %f1;
        red.shared.max.u32 [most], %r0;
        bar.sync 0;
        ld.shared.f32 %f2, [sum];
        cvt.rzi.u32.f32 %r5, %f2;
        ld.shared.u32 %r6, [most];
        mad.lo.u32 %r5, %r6, 10000, %r5;
        st.global.u32 [%rd3], %r5;";
    let text = kernel_with(".shared .align 4 .f32 sum; .shared .align 4 .u32 most;", body);
    assert!(words(&run_text(&text, 64, &[], 256)).iter().all(|&word| word == 63 * 10000 + 2016));
}

#[test]
fn compare_and_swap_takes_one_lane() {
    let body = "st.shared.u32 [owner], -1;
        bar.sync 0;
        atom.shared.cas.b32 %r5, [owner], -1, %r0;
        ld.shared.u32 %r6, [owner];
        st.global.u32 [%rd3], %r6;";
    let text = kernel_with(".shared .align 4 .u32 owner;", body);
    assert!(words(&run_text(&text, 32, &[], 128)).iter().all(|&word| word == 0));
}
