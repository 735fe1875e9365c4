//! Faults that stop a kernel.

use retrograph_ptx::ast::StateSpace;
use retrograph_ptx_exec::{DecodeError, Fault, FaultKind, Launch};

use super::{Bench, decode, fault_of, kernel, kernel_with};

#[test]
fn an_access_past_the_end_names_the_thread_and_the_instruction() {
    let fault = fault_of(&kernel("st.global.u32 [%rd3], %r0;"), 64, 4 * 40);
    assert!(matches!(
        fault.kind,
        FaultKind::OutOfBounds { bytes: 4, space: StateSpace::Global, .. }
    ));
    assert_eq!((fault.site.thread, fault.site.block), ([40, 0, 0], [0, 0, 0]));
    assert_eq!(fault.site.text, "st.global.u32 [%rd3], %r0;");
    assert_eq!(fault.site.kernel, "k");
    let message = fault.to_string();
    assert!(message.contains("thread (40, 0, 0)") && message.contains("line 22"), "{message}");
}

#[test]
fn misaligned_and_null_addresses() {
    let fault = fault_of(&kernel("ld.global.v2.u32 {%r4, %r5}, [%rd2+4];"), 1, 4);
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 8, .. }));
    // A vector is aligned as a whole.
    let fault = fault_of(&kernel("atom.global.v2.f32.add {_, _}, [%rd1+4], {%f1, %f2};"), 1, 16);
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 8, .. }));
    let eight = "{%r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11}";
    for access in [
        format!("ld.global.v8.b32 {eight}, [%rd2+16]"),
        format!("st.global.v8.b32 [%rd2+16], {eight}"),
    ] {
        let text = kernel(&format!("{access};")).replace("8.1", "8.8").replace("sm_90", "sm_100");
        let fault = fault_of(&text, 1, 16);
        assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 32, .. }), "{fault}");
    }
    let fault = fault_of(&kernel("mov.u64 %rd7, 0; ld.global.u32 %r4, [%rd7];"), 32, 4);
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { address: 0, .. }));
}

#[test]
fn freed_memory() {
    let text = kernel("ld.global.u32 %r4, [%rd4];");
    let bench = Bench::new(&[0; 128], 4);
    let program = decode(&text).unwrap();
    let source = u64::from_le_bytes(bench.params[8..].try_into().unwrap());
    bench.launch(&program, Launch { block: [32, 1, 1], ..Launch::default() }).unwrap();
    bench.memory.free(source).unwrap();
    let fault = bench.launch(&program, Launch { block: [32, 1, 1], ..Launch::default() });
    let out_of_bounds = |fault: Fault| matches!(fault.kind, FaultKind::OutOfBounds { .. });
    assert!(fault.is_err_and(out_of_bounds));
}

#[test]
fn every_allocation_has_red_zones() {
    let bench = Bench::new(&[0; 64], 64);
    let others: Vec<u64> = (0..8).map(|_| bench.memory.alloc(64).unwrap()).collect();
    let middle = others[4];
    let fault_at = |address: u64| {
        let program = decode(&kernel("ld.global.u32 %r4, [%rd1];")).unwrap();
        let parameters = [address.to_le_bytes(), address.to_le_bytes()].concat();
        let launch = Launch { parameters: &parameters, ..Launch::default() };
        crate::launch(&program, &launch, &bench.memory).err().map(|fault| fault.kind)
    };
    assert_eq!(fault_at(middle + 60), None);
    for step in (2..=20).map(|bits| 1u64 << bits) {
        for address in [middle - step, middle + 60 + step] {
            let bytes = 4;
            let expected = FaultKind::OutOfBounds { address, bytes, space: StateSpace::Global };
            assert_eq!(fault_at(address), Some(expected), "{step}");
        }
    }
}

#[test]
fn shared_memory_has_bounds() {
    let text = kernel_with(
        ".shared .align 4 .b32 tile[8];",
        "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], 1;",
    );
    let fault = fault_of(&text, 32, 4);
    let space = StateSpace::Shared;
    assert_eq!(fault.kind, FaultKind::OutOfBounds { address: 32, bytes: 4, space });
    assert_eq!(fault.site.thread, [8, 0, 0]);
}

#[test]
fn a_trap_in_one_thread() {
    let fault = fault_of(&kernel("setp.eq.u32 %p1, %r0, 37; @%p1 trap;"), 64, 4);
    assert_eq!((fault.kind, fault.site.thread), (FaultKind::Trap, [37, 0, 0]));
}

#[test]
fn a_barrier_that_some_lanes_do_not_reach() {
    let diverged = "setp.lt.u32 %p1, %r0, 16;
        @%p1 bra LOW;
        bar.sync 0;
        bra END;
        LOW: bar.sync 1;
        END: add.u32 %r4, %r0, 1;";
    assert_eq!(fault_of(&kernel(diverged), 32, 4).kind, FaultKind::BarrierDivergence);
    let guarded = "setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;";
    assert_eq!(fault_of(&kernel(guarded), 32, 4).kind, FaultKind::BarrierDivergence);
    // Warps at different barriers wait forever.
    let warps = "setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0; @!%p1 bar.sync 1;";
    let waits = |body: &str| match fault_of(&kernel(body), 64, 4).kind {
        FaultKind::Deadlock { waiting } => waiting,
        other => panic!("{other}"),
    };
    assert_eq!(
        waits(warps),
        "warp 0 waits at barrier 0 for all threads; warp 1 waits at barrier 1 for all threads"
    );
    assert_eq!(
        waits("bar.sync 0, 2048;"),
        "warp 0 waits at barrier 0 for 2048 threads; warp 1 waits at barrier 0 for 2048 threads"
    );
}

#[test]
fn arguments_beyond_local_memory_are_named() {
    let text = kernel_with(".param .b64 large[30000], larger[32000], small[30000];", "");
    let error = decode(&text).unwrap_err().to_string();
    assert!(error.contains("its largest variable is `larger`"), "{error}");
}

#[test]
fn an_endless_loop() {
    let fault = fault_of(&kernel("LOOP: add.u32 %r4, %r4, 1; bra LOOP;"), 32, 4);
    assert_eq!(fault.kind, FaultKind::StepLimit { limit: 1 << 20, not_started: None });
}

#[test]
fn warp_operations_without_their_members() {
    let undefined = |body: &str| {
        let fault = fault_of(&kernel(body), 32, 4);
        assert!(matches!(fault.kind, FaultKind::Undefined(_)), "{fault}");
    };
    undefined("setp.lt.u32 %p1, %r0, 4; @%p1 shfl.sync.bfly.b32 %r4, %r0, 1, 31, -1;");
    undefined("shfl.sync.bfly.b32 %r4, %r0, 1, 31, 15;");
    undefined("setp.ge.u32 %p1, %r0, 16; @%p1 ret; shfl.sync.bfly.b32 %r4, %r0, 16, 31, -1;");
}

#[test]
fn unimplemented_instructions_are_refused_by_name() {
    let error = decode(&kernel("fma.rn.oob.f16 %h1, %h2, %h3, %h4;")).unwrap_err();
    let DecodeError::Unsupported { line, text, what, .. } = error else { panic!("{error}") };
    assert_eq!((line, text.as_str()), (22, "fma.rn.oob.f16 %h1, %h2, %h3, %h4;"));
    assert!(what.contains(".oob"));
}
