//! Calls with frames: recursion and calls through pointers.

use retrograph_ptx_exec::memory::POISON;
use retrograph_ptx_exec::{FaultKind, Launch, Undefined};

use super::{Bench, bytes_of, decode, fault_of, kernel, run_text, words};

/// A kernel after functions.
fn with_functions(functions: &str, body: &str) -> String {
    kernel(body).replacen(".visible .entry", &format!("{functions}\n.visible .entry"), 1)
}

/// `fib(n)`, by recursion, as a compiler writes it.
const FIB: &str = ".func (.param .b32 result) fib(.param .b32 n) {
    .reg .pred %p; .reg .b32 %r<6>;
    ld.param.u32 %r1, [n];
    mov.u32 %r5, %r1;
    setp.lt.u32 %p, %r1, 2;
    @%p bra DONE;
    { .param .b32 a; .param .b32 b;
      sub.u32 %r2, %r1, 1; st.param.b32 [a], %r2;
      call.uni (b), fib, (a);
      ld.param.b32 %r3, [b]; }
    { .param .b32 a; .param .b32 b;
      sub.u32 %r2, %r1, 2; st.param.b32 [a], %r2;
      call.uni (b), fib, (a);
      ld.param.b32 %r4, [b]; }
    add.u32 %r5, %r3, %r4;
    DONE: st.param.b32 [result], %r5;
    ret; }";

#[test]
fn each_lane_of_a_recursion_has_its_own_depth_and_values() {
    let body = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r0;
        call.uni (b), fib, (a); ld.param.b32 %r9, [b]; }
        add.u32 %r9, %r9, %r0;
        st.global.u32 [%rd3], %r9;";
    let fib = |n: u32| (0..n).fold((0u32, 1u32), |(a, b), _| (b, a + b)).0;
    let want: Vec<u32> = (0..20).map(|n| fib(n) + n).collect();
    assert_eq!(words(&run_text(&with_functions(FIB, body), 20, &[], 80)), want);
}

#[test]
fn a_call_under_a_guard_leaves_the_other_lanes_alone() {
    let body = "setp.gt.u32 %p1, %r0, 7; mov.u32 %r9, 1000;
        @%p1 call (%r9), fib, (%r0);
        st.global.u32 [%rd3], %r9;";
    let want = [[1000; 8].as_slice(), &[21, 34, 55]].concat();
    assert_eq!(words(&run_text(&with_functions(FIB, body), 11, &[], 44)), want);
}

#[test]
fn mutual_recursion_and_its_arrays_in_local_memory() {
    // Two functions call each other to sum 1..=n through the address of a variable of the first
    // caller; every frame fills its own array before the call and reads it after.
    let function = |name: &str, other: &str| {
        format!(
            ".func {name}(.param .b32 n, .param .b64 to) {{
            .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<4>; .local .align 8 .b8 own[16];
            ld.param.u32 %r1, [n]; ld.param.u64 %rd1, [to];
            setp.eq.u32 %p, %r1, 0;
            @%p ret;
            st.local.u32 [own+4], %r1;
            sub.u32 %r2, %r1, 1;
            call {other}, (%r2, %rd1);
            ld.u32 %r3, [%rd1];
            ld.local.u32 %r4, [own+4];
            add.u32 %r3, %r3, %r4;
            st.u32 [%rd1], %r3;
            ret; }}"
        )
    };
    let declared = ".func odd(.param .b32 n, .param .b64 to);";
    let functions = [declared, &function("even", "odd"), &function("odd", "even")].concat();
    let body = ".local .align 8 .b8 total[8]; st.local.u32 [total], 0;
        mov.u64 %rd7, total; cvta.local.u64 %rd7, %rd7;
        call even, (%r0, %rd7);
        ld.local.u32 %r9, [total];
        st.global.u32 [%rd3], %r9;";
    let want: Vec<u32> = (0..40).map(|n| n * (n + 1) / 2).collect();
    assert_eq!(words(&run_text(&with_functions(&functions, body), 40, &[], 160)), want);
}

const OPERATIONS: &str = ".func (.param .b32 c) plus(.param .b32 a, .param .b32 b) {
    .reg .b32 %r<4>; ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b];
    add.u32 %r3, %r1, %r2; st.param.b32 [c], %r3; ret; }
    .func (.param .b32 c) times(.param .b32 a, .param .b32 b) {
    .reg .b32 %r<4>; ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b];
    mul.lo.u32 %r3, %r1, %r2; st.param.b32 [c], %r3; ret; }
    .func (.param .align 8 .b8 c[12]) pack(.param .align 8 .b8 a[12]) {
    .reg .b32 %r<4>; .reg .b64 %rd; ld.param.u64 %rd, [a]; ld.param.u32 %r1, [a+8];
    add.u64 %rd, %rd, 1; add.u32 %r1, %r1, 2;
    st.param.b64 [c], %rd; st.param.b32 [c+8], %r1; ret; }";

#[test]
fn lanes_call_different_functions_through_a_pointer() {
    let body = "mov.u64 %rd7, plus; mov.u64 %rd8, times;
        and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 0;
        selp.b64 %rd9, %rd7, %rd8, %p1;
        binary: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
        { .param .b32 a; .param .b32 b; .param .b32 c;
          st.param.b32 [a], %r0; st.param.b32 [b], 5;
          call (c), %rd9, (a, b), binary;
          ld.param.b32 %r9, [c]; }
        st.global.u32 [%rd3], %r9;";
    let want: Vec<u32> = (0..40).map(|i| if i % 2 == 0 { i + 5 } else { i * 5 }).collect();
    assert_eq!(words(&run_text(&with_functions(OPERATIONS, body), 40, &[], 160)), want);
}

#[test]
fn structures_are_passed_through_a_pointer() {
    let body = "mov.u64 %rd7, pack;
        shape: .callprototype (.param .align 8 .b8 _[12]) _ (.param .align 8 .b8 _[12]);
        { .param .align 8 .b8 a[12]; .param .align 8 .b8 c[12];
          mov.u64 %rd8, 0x100000000; st.param.b64 [a], %rd8; st.param.b32 [a+8], %r0;
          call (c), %rd7, (a), shape;
          ld.param.b64 %rd9, [c]; ld.param.b32 %r9, [c+8]; }
        cvt.u32.u64 %r10, %rd9; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r11, %rd9;
        add.u32 %r10, %r10, %r11; mad.lo.u32 %r9, %r10, 100, %r9;
        st.global.u32 [%rd3], %r9;";
    let want: Vec<u32> = (0..33).map(|i| 200 + i + 2).collect();
    assert_eq!(words(&run_text(&with_functions(OPERATIONS, body), 33, &[], 132)), want);
}

#[test]
fn registers_of_a_function_start_as_poison_at_each_call() {
    let function = ".func (.param .b32 r) f(.param .b32 n) {
        .reg .b32 %r<3>; .reg .pred %p; ld.param.b32 %r1, [n]; setp.eq.u32 %p, %r1, 0;
        @%p mov.u32 %r2, 7; st.param.b32 [r], %r2; ret; }";
    let body = "mov.u64 %rd7, f; p: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (%r9), %rd7, (0), p;
        call (%r9), %rd7, (1), p;
        st.global.u32 [%rd3], %r9;";
    let text = with_functions(function, body);
    assert_eq!(words(&run_text(&text, 1, &[], 4)), [POISON]);
}

const HEAP: &str = ".extern .func (.param .b64 p) malloc(.param .b64 bytes);
    .extern .func free(.param .b64 p);";

#[test]
fn each_thread_has_a_block_of_the_heap() {
    // Blocks start as poison, keep what is stored in them, and are reused after `free`.
    let body = "mov.u64 %rd10, 8; call (%rd7), malloc, (%rd10);
        ld.u32 %r9, [%rd7+4];
        st.u32 [%rd7], %r0;
        bar.sync 0;
        ld.u32 %r10, [%rd7];
        setp.eq.u32 %p1, %r10, %r0;
        @%p1 st.global.u32 [%rd3], %r9;
        call free, (%rd7);
        mov.u64 %rd10, 0; call free, (%rd10);";
    let text = with_functions(HEAP, body);
    assert_eq!(words(&run_text(&text, 40, &[], 160)), [POISON; 40]);
}

#[test]
fn a_full_heap_returns_null() {
    let body = "mov.u64 %rd10, 6000000; call (%rd7), malloc, (%rd10);
        call (%rd8), malloc, (%rd10);
        setp.ne.u64 %p1, %rd7, 0; setp.eq.u64 %p2, %rd8, 0; and.pred %p1, %p1, %p2;
        call free, (%rd7);
        call (%rd8), malloc, (%rd10);
        setp.eq.u64 %p2, %rd8, %rd7; and.pred %p1, %p1, %p2;
        call free, (%rd8);
        selp.u32 %r9, 1, 0, %p1; st.global.u32 [%rd3], %r9;";
    assert_eq!(words(&run_text(&with_functions(HEAP, body), 1, &[], 4)), [1]);
}

#[test]
fn a_block_is_freed_once() {
    let body = "mov.u64 %rd10, 8; call (%rd7), malloc, (%rd10);
        call free, (%rd7); call free, (%rd7);";
    let fault = fault_of(&with_functions(HEAP, body), 1, 4);
    assert_eq!(fault.kind, FaultKind::Undefined(Undefined::Freed));
}

#[test]
fn a_call_through_an_invalid_pointer_is_reported() {
    let body = "p: .callprototype _ (); mov.u64 %rd7, 8; call %rd7, p;";
    let fault = fault_of(&kernel(body), 1, 4);
    assert_eq!(fault.kind, FaultKind::Undefined(Undefined::CallTarget));
}

#[test]
fn endless_recursion_overflows_the_stack() {
    let function = ".func f() { call f; ret; }";
    let fault = fault_of(&with_functions(function, "call f;"), 1, 4);
    assert_eq!(fault.kind, FaultKind::Undefined(Undefined::StackOverflow));
}

#[test]
fn an_unsupported_instruction_of_a_called_function_is_refused_with_its_line() {
    let function = ".extern .func g();\n.func f() {\ncall g;\ncall f;\nret; }";
    let error = decode(&with_functions(function, "call f;")).unwrap_err().to_string();
    assert!(error.contains("in `f`") && error.contains("call g"), "{error}");
}

#[test]
fn other_orders_give_the_same_values() {
    let body = "call (%r9), fib, (%r0); st.global.u32 [%rd3], %r9;";
    let program = decode(&with_functions(FIB, body)).unwrap();
    for seed in 0..4 {
        let bench = Bench::new(&bytes_of(&[0]), 64);
        let launch = Launch { block: [16, 1, 1], seed, ..Launch::default() };
        bench.launch(&program, launch).unwrap();
        let out = words(&bench.output());
        assert_eq!(out[..8], [0, 1, 1, 2, 3, 5, 8, 13], "seed {seed}");
    }
}

/// Functions `f0`, `f1` and so on, each of which calls the one before `calls` times.
fn nested(depth: usize, calls: usize, declarations: &str) -> String {
    let function = |index: usize| {
        let call = match index.checked_sub(1) {
            Some(inner) => format!("call f{inner};").repeat(calls),
            None => String::new(),
        };
        format!(".func f{index} {{ {declarations} {call} ret; }}\n")
    };
    (0..depth).map(function).collect()
}

/// Decodes a kernel that calls the outermost of [`nested`] functions.
fn decode_nested(depth: usize, calls: usize, declarations: &str) -> Result<(), String> {
    let functions = nested(depth, calls, declarations);
    let text = with_functions(&functions, &format!("call f{};", depth - 1));
    decode(&text).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn inlined_calls_have_limits() {
    assert_eq!(decode_nested(128, 1, ""), Ok(()));
    let refused =
        |depth, calls, declarations| decode_nested(depth, calls, declarations).unwrap_err();
    let found = refused(3000, 1, "");
    assert!(found.contains("more than 128 calls inside each other"), "{found}");
    let found = refused(60, 2, "");
    assert!(found.contains("more than 8192 calls, with all functions"), "{found}");
    let found = refused(12, 2, ".reg .b32 %r<1000>;");
    assert!(found.contains("more than 1048576 registers"), "{found}");
}
