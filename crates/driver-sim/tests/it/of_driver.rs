//! Driver functions that kernels call: `vprintf` and `__assertfail`.

use std::ffi::{CStr, CString};

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// A kernel that prints with a format, and three arguments of 8 bytes each.
fn printing(format: &str, [a, b, c]: [&str; 3]) -> CString {
    let bytes: Vec<_> = format.bytes().chain([0]).map(|byte| byte.to_string()).collect();
    let word: Vec<_> = b"word\0".iter().map(u8::to_string).collect();
    let (format, count, word) = (bytes.join(", "), bytes.len(), word.join(", "));
    let body = format!(
        ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 l);
.global .align 1 .b8 format[{count}] = {{{format}}};
.global .align 1 .b8 word[5] = {{{word}}};
.visible .entry k(.param .u64 out)
{{
    .local .align 8 .b8 list[24];
    .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .pred %p<1>;
    .param .b64 f; .param .b64 l; .param .b32 r;
    mov.u64 %rd0, list; cvta.local.u64 %rd1, %rd0;
    mov.u64 %rd2, word; cvta.global.u64 %rd2, %rd2;
    st.local.b64 [%rd0], {a};
    st.local.b64 [%rd0+8], {b};
    st.local.b64 [%rd0+16], {c};
    mov.u64 %rd3, format; cvta.global.u64 %rd3, %rd3;
    mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    st.param.b64 [f], %rd3;
    st.param.b64 [l], %rd1;
    @%p0 call.uni (r), vprintf, (f, l);
    @!%p0 ret;
    ld.param.b32 %r2, [r];
    ld.param.u64 %rd4, [out]; cvta.to.global.u64 %rd4, %rd4;
    st.global.u32 [%rd4], %r2;
    ret;
}}
"
    );
    ptx::image("7.0", "sm_80", &body)
}

/// Starts two threads of `k`, one of which prints. Returns the address of the result of `vprintf`.
fn start(machine: &Machine, image: &CStr) -> CUdeviceptr {
    let module = machine.load(image).expect("it loads");
    let (mut function, mut out) = (CUfunction::NULL, machine.zero());
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    assert_eq!(code, SUCCESS);
    let mut parameters = [(&raw mut out).cast()];
    let (given, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
    let stream = CUstream::NULL;
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 2, 1, 1, 0, stream, given, none));
    assert_eq!(code, SUCCESS);
    out
}

/// Runs two threads of `k`, one of which prints. Returns the text and the result of `vprintf`.
fn print(format: &str, list: [&str; 3]) -> (String, u32) {
    let machine = Machine::new();
    let out = start(&machine, &printing(format, list));
    assert_eq!(machine.simulator.take_output(), "", "nothing ran yet");
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    let text = machine.simulator.take_output();
    assert_eq!(machine.simulator.take_output(), "", "it was taken");
    (text, machine.peek(out))
}

#[test]
fn kernels_print_as_c_does() {
    fn all(format: &str, list: [&str; 3]) -> String {
        print(format, list).0
    }
    assert_eq!(print("%lld %s %%\n", ["-7", "%rd2", "0"]), ("-7 word %\n".to_owned(), 2));
    assert_eq!(print("plain", ["0", "0", "0"]), ("plain".to_owned(), 0));
    let float = |value: f64| format!("{:#018x}", value.to_bits());
    let (x, y, z) = (float(1.5), float(-0.000012345), float(1e20));
    assert_eq!(all("%f %e %g", [&x, &y, &z]), "1.500000 -1.234500e-05 1e+20");
    assert_eq!(all("[%8.2f|%-8.1f|%+g]", [&x, &x, &x]), "[    1.50|1.5     |+1.5]");
    assert_eq!(
        all("[%08.2f|%g|%.3g]", [&y, &float(100_000.0), &float(1234.5)]),
        "[-0000.00|100000|1.23e+03]"
    );
    assert_eq!(
        all("%f %E %F", [&float(f64::NAN), &float(1.0), &float(f64::INFINITY)]),
        "nan 1.000000E+00 INF"
    );
    // Two 4-byte arguments share 8 bytes; the upper half of the first parameter is the second
    // argument.
    assert_eq!(all("%d %u", ["0x00000002ffffffff", "0", "0"]), "-1 2");
    assert_eq!(all("[%5d|%-5d|%05d]", ["0x0000000300000002", "-4", "0"]), "[    2|3    |-0004]");
    assert_eq!(all("%hhd %hu %hx", ["0x0001ffff0001ff80", "0x12345678", "0"]), "-128 65535 5678");
    assert_eq!(all("%a %A %.1a", [&x, &y, &x]), "0x1.8p+0 -0X1.9E3ABE16FC70DP-17 0x1.8p+0");
    let (zero, tiny) = (float(0.0), float(f64::from_bits(1)));
    assert_eq!(all("%a %a %.0a", [&zero, &tiny, &x]), "0x0p+0 0x0.0000000000001p-1022 0x2p+0");
    assert_eq!(
        all("[%010a|%.15a|%#a]", [&x, &x, &zero]),
        "[0x001.8p+0|0x1.800000000000000p+0|0x0.p+0]"
    );
    assert_eq!(all("%llx %#llx %llX", ["255", "255", "255"]), "ff 0xff FF");
    assert_eq!(all("[%*d|%.2s|%c]", ["0x0000000700000003", "%rd2", "65"]), "[  7|wo|A]");
}

#[test]
fn a_list_of_arguments_at_a_wrong_address_is_a_fault() {
    let machine = Machine::new();
    let text = printing("%lld %d", ["0"; 3]).into_string().unwrap();
    let text = text.replace("cvta.local.u64 %rd1, %rd0;", "mov.u64 %rd1, -2;");
    start(&machine, &CString::new(text).unwrap());
    assert_eq!(cu!(machine, cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_failed_assertion_names_itself() {
    let text = |name: &str, text: &str| {
        let bytes: Vec<_> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        format!(".global .align 1 .b8 {name}[{}] = {{{}}};\n", bytes.len(), bytes.join(", "))
    };
    let strings = text("m", "x > 0") + &text("file", "a.cu") + &text("name", "void k(int)");
    let address = |register: &str, name: &str| {
        format!("mov.u64 {register}, {name}; cvta.global.u64 {register}, {register};\n")
    };
    let kernel = ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, \
        .param .b64 d, .param .b64 e) .noreturn;\n"
        .to_owned()
        + &strings
        + ".visible .entry k() {\n.reg .b64 %rd<3>;\n"
        + &address("%rd0", "m")
        + &address("%rd1", "file")
        + &address("%rd2", "name")
        + ".param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;\n\
           st.param.b64 [a], %rd0; st.param.b64 [b], %rd1; st.param.b32 [c], 42;\n\
           st.param.b64 [d], %rd2; st.param.b64 [e], 1;\n\
           call.uni __assertfail, (a, b, c, d, e);\nret;\n}\n";
    let machine = Machine::new();
    let module = machine.load(&ptx::image("7.0", "sm_80", &kernel)).expect("it loads");
    let mut function = CUfunction::NULL;
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    assert_eq!(code, SUCCESS);
    let (none, stream) = (std::ptr::null_mut(), CUstream::NULL);
    let code =
        cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none.cast()));
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuCtxSynchronize()), CUresult::CUDA_ERROR_ASSERT);
    let said = machine.diagnostics(DiagnosticKind::Fault);
    assert!(said[0].contains("a.cu:42: void k(int): the assertion `x > 0` failed"), "{said:?}");
}
