//! Loads and stores.

use retrograph_ptx_exec::memory::POISON;

use super::{bytes_of, kernel, kernel_with, run_text, words};

#[test]
fn narrow_loads_extend() {
    let body = "add.u64 %rd7, %rd2, %rd8;
        ld.global.s8 %r5, [%rd2+1];
        ld.global.u8 %r6, [%rd2+1];
        ld.global.s16 %r7, [%rd2];
        st.global.v4.b32 [%rd1], {%r5, %r6, %r7, 9};
        st.global.u8 [%rd1+12], %r5;";
    let body = body.replace("add.u64 %rd7, %rd2, %rd8;", "");
    let out = run_text(&kernel(&body), 1, &[0x34, 0x92], 16);
    assert_eq!(words(&out), [0xffff_ff92, 0x92, 0xffff_9234, 0x92]);
}

#[test]
fn vectors_gather_and_scatter() {
    // Thread t copies the quadruple 31 - t, and writes it as pairs.
    let body = "sub.u32 %r4, 31, %r0;
        mad.wide.u32 %rd7, %r4, 16, %rd2;
        ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd7];
        mad.wide.u32 %rd8, %r0, 16, %rd1;
        st.global.v2.f32 [%rd8+8], {%f1, %f2};
        st.global.v2.f32 [%rd8], {%f3, %f4};";
    let input: Vec<u32> = (0..128).collect();
    let out = words(&run_text(&kernel(body), 32, &bytes_of(&input), 512));
    for (index, &word) in out.iter().enumerate() {
        let (thread, part) = (index / 4, index % 4);
        assert_eq!(word as usize, (31 - thread) * 4 + (part + 2) % 4);
    }
}

#[test]
fn a_warp_loads_one_address_or_every_other() {
    let body = "ld.global.f32 %f1, [%rd2+8];
        mad.wide.u32 %rd7, %r0, 8, %rd2;
        ld.global.b32 %r5, [%rd7];
        mov.b32 %r6, %f1;
        add.u32 %r5, %r5, %r6;
        st.global.b32 [%rd3], %r5;";
    let input: Vec<u32> = (0..64).map(|i| i * 10).collect();
    let out = words(&run_text(&kernel(body), 32, &bytes_of(&input), 128));
    assert!(out.iter().enumerate().all(|(i, &word)| word as usize == 20 * i + 20));
}

#[test]
fn lanes_span_two_allocations() {
    // Even lanes read the input and odd lanes the output, which is another allocation.
    let body = "st.global.b32 [%rd3], %r0;
        and.b32 %r4, %r0, 1;
        setp.eq.u32 %p1, %r4, 0;
        selp.b64 %rd7, %rd4, %rd3, %p1;
        ld.global.b32 %r5, [%rd7];
        st.global.b32 [%rd3], %r5;";
    let input: Vec<u32> = (0..32).map(|i| i + 1000).collect();
    let out = words(&run_text(&kernel(body), 32, &bytes_of(&input), 128));
    assert!(out.iter().enumerate().all(|(i, &w)| w as usize == i + 1000 * usize::from(i % 2 == 0)));
}

#[test]
fn shared_memory_is_exchanged_at_a_barrier() {
    let body = "mov.u32 %r4, tile;
        mad.lo.u32 %r5, %r0, 4, %r4;
        ld.global.b32 %r6, [%rd4];
        st.shared.b32 [%r5], %r6;
        bar.sync 0;
        sub.u32 %r7, 95, %r0;
        mad.lo.u32 %r5, %r7, 4, %r4;
        ld.shared.b32 %r8, [%r5];
        st.global.b32 [%rd3], %r8;";
    let input: Vec<u32> = (0..96).map(|i| i * i).collect();
    let text = kernel_with(".shared .align 16 .b8 tile[384];", body);
    let mut out = words(&run_text(&text, 96, &bytes_of(&input), 384));
    out.reverse();
    assert_eq!(out, input);
}

#[test]
fn shared_memory_has_generic_addresses() {
    let body = "mov.u64 %rd7, tile;
        cvta.shared.u64 %rd8, %rd7;
        st.u32 [%rd8+4], 77;
        cvta.to.shared.u64 %rd9, %rd8;
        ld.shared.u32 %r5, [tile+4];
        ld.shared.u32 %r6, [%rd9+4];
        add.u32 %r5, %r5, %r6;
        st.u32 [%rd3], %r5;";
    let text = kernel_with(".shared .align 4 .b32 tile[2];", body);
    assert_eq!(words(&run_text(&text, 1, &[], 4)), [154]);
}

#[test]
fn local_memory_belongs_to_a_thread() {
    let body = "mov.u64 %rd7, mine;
        st.local.u32 [%rd7+4], %r0;
        st.local.u32 [mine], 5;
        ld.local.v2.u32 {%r5, %r6}, [%rd7];
        add.u32 %r5, %r5, %r6;
        st.global.u32 [%rd3], %r5;";
    let text = kernel_with(".local .align 8 .b32 mine[2];", body);
    let out = words(&run_text(&text, 64, &[], 256));
    assert!(out.into_iter().eq((0..64).map(|i| i + 5)));
}

#[test]
fn shared_memory_starts_as_poison() {
    let text = kernel_with(
        ".shared .align 4 .b32 tile[2];",
        "ld.shared.u32 %r5, [tile]; st.global.u32 [%rd3], %r5;",
    );
    assert_eq!(words(&run_text(&text, 1, &[], 4)), [POISON]);
}

#[test]
fn shared_addresses_of_32_bits_wrap_around() {
    let body = "st.shared.v2.u32 [tile], {3, 4};
        mov.u32 %r4, -8;
        ld.shared.u32 %r5, [%r4+12];
        cvt.u16.u32 %h1, %r5;
        st.shared.u16 [%r4+8], %h1;
        ld.shared.u32 %r6, [tile];
        st.global.v2.u32 [%rd1], {%r5, %r6};";
    let text = kernel_with(".shared .align 8 .b32 tile[2];", body);
    assert_eq!(words(&run_text(&text, 1, &[], 8)), [4, 4]);
}
