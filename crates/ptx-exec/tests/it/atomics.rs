//! Atomics.

use super::{Bench, Launch, binary, decode, kernel, kernel_with, run_text, words};

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
fn a_vector_atomic_reads_its_sources_before_it_writes_results() {
    let body = "mov.f32 %f1, 0f3F800000;
        mov.f32 %f2, 0f40000000;
        st.global.v2.f32 [%rd1], {0f41200000, 0f41A00000};
        atom.global.v2.f32.add {%f1, %f2}, [%rd1], {%f2, %f1};
        st.global.v2.f32 [%rd1+8], {%f1, %f2};";
    let found = words(&run_text(&kernel(body), 1, &[], 16));
    assert_eq!(found.into_iter().map(f32::from_bits).collect::<Vec<_>>(), [12.0, 21.0, 10.0, 20.0]);
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

#[test]
fn memory_holds_the_new_value_and_the_result_is_the_old_one() {
    let run = |operation: &str, (memory, operand): (u32, u32)| {
        let swapped = if operation.starts_with("cas") { ", 9" } else { "" };
        let atomic = |result: &str| {
            let body = format!(
                "st.global.b32 [%rd3], %r7; atom.global.{operation} %r5, [%rd3], %r8{swapped};
                ld.global.b32 %r6, [%rd3]; mov.b32 %r9, {result};"
            );
            binary(&body, &[(memory, operand)])[0]
        };
        assert_eq!(atomic("%r5"), memory, "{operation}");
        atomic("%r6")
    };
    const M: u32 = u32::MAX;
    assert_eq!(run("add.u32", (M, 2)), 1);
    assert_eq!([run("min.s32", (3, M)), run("min.u32", (3, M))], [M, 3]);
    assert_eq!([run("max.s32", (3, M)), run("max.u32", (3, M))], [3, M]);
    assert_eq!([run("and.b32", (12, 10)), run("or.b32", (12, 10))], [8, 14]);
    assert_eq!([run("xor.b32", (12, 10)), run("exch.b32", (1, 2))], [6, 2]);
    assert_eq!([run("cas.b32", (1, 1)), run("cas.b32", (2, 1))], [9, 2]);
    assert_eq!([run("inc.u32", (4, 5)), run("inc.u32", (5, 5)), run("inc.u32", (9, 5))], [5, 0, 0]);
    assert_eq!([run("dec.u32", (0, 5)), run("dec.u32", (3, 5)), run("dec.u32", (9, 5))], [5, 2, 5]);
    let floats = (1.0f32.to_bits(), 2.5f32.to_bits());
    let body = "mov.b32 %f1, %r8; st.global.b32 [%rd3], %r7;
        atom.global.add.f32 %f2, [%rd3], %f1; ld.global.b32 %r9, [%rd3];";
    assert_eq!(binary(body, &[floats]), [3.5f32.to_bits()]);
}
