//! Linking: the resulting text, and the errors of invalid texts.

use std::ffi::{CStr, c_void};

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

impl Machine {
    /// A linker with these options.
    fn link(&self, options: &mut [CUjit_option], values: &mut [*mut c_void]) -> CUlinkState {
        let mut link = CUlinkState::NULL;
        let count = u32::try_from(options.len()).expect("few options");
        let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
        assert_eq!(cu!(self, cuLinkCreate_v2(count, names, places, &mut link)), SUCCESS);
        link
    }

    /// Adds a text to a linker.
    fn add_text(&self, link: CUlinkState, text: &CStr) -> CUresult {
        self.add_input(link, CUjitInputType::CU_JIT_INPUT_PTX, c"text", text.to_bytes_with_nul())
    }

    /// Adds an input with a name.
    fn add_input(
        &self,
        link: CUlinkState,
        kind: CUjitInputType,
        name: &CStr,
        bytes: &[u8],
    ) -> CUresult {
        let (data, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        cu!(self, cuLinkAddData_v2(link, kind, data, size, name.as_ptr(), 0, none, nothing))
    }

    /// A linker whose error log goes to `log`. It reads `values` and writes them later, too.
    fn link_with_log(&self, log: &mut [u8], values: &mut [*mut c_void; 2]) -> CUlinkState {
        use CUjit_option as O;
        let mut options = [O::CU_JIT_ERROR_LOG_BUFFER, O::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        *values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        self.link(&mut options, values)
    }
}

#[test]
fn a_linked_image_is_a_text_of_the_reported_size() {
    let machine = Machine::new();
    let link = machine.link(&mut [], &mut []);
    assert_eq!(machine.add_text(link, &ptx::small("7.0", "sm_80")), SUCCESS);
    let (mut image, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
    assert_eq!(cu!(machine, cuLinkComplete(link, &mut image, &mut bytes)), SUCCESS);
    // SAFETY: the image lives as long as the linker, and has the reported size.
    let made = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
    let text = CStr::from_bytes_with_nul(made).expect("one zero byte, at the end");
    let module = machine.load(text).expect("what was linked loads");
    let mut store = CUfunction::NULL;
    let code = cu!(machine, cuModuleGetFunction(&mut store, module, c"store".as_ptr()));
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuLinkDestroy(link)), SUCCESS);
}

#[test]
fn the_log_of_a_linker_names_the_error_of_an_input() {
    let machine = Machine::new();
    let (mut log, mut values) = (vec![0u8; 400], [std::ptr::null_mut(); 2]);
    let link = machine.link_with_log(&mut log, &mut values);
    let image = ptx::image("7.0", "sm_80", ".visible .entry bad()\n{\n    no.such.thing %r1;\n}\n");
    assert_eq!(machine.add_text(link, &image), CUresult::CUDA_ERROR_INVALID_PTX);
    let said = CStr::from_bytes_until_nul(&log).expect("a log ends in a zero byte");
    let said = said.to_str().expect("UTF-8");
    assert!(said.contains("found `no`"), "{said}");
}

#[test]
fn the_log_of_a_linker_names_an_undefined_function_and_its_caller() {
    let machine = Machine::new();
    let (mut log, mut values) = (vec![0u8; 400], [std::ptr::null_mut(); 2]);
    let link = machine.link_with_log(&mut log, &mut values);
    assert_eq!(machine.add_text(link, &part("7.0", ".visible .entry k() { ret; }\n")), SUCCESS);
    let calls = ".extern .func far();\n.visible .entry e() { call.uni far; ret; }\n";
    let text = part("7.0", calls);
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    assert_eq!(machine.add_input(link, kind, c"caller", text.to_bytes_with_nul()), SUCCESS);
    assert_eq!(machine.complete(link, c"e"), Err(CUresult::CUDA_ERROR_INVALID_SOURCE));
    let said = CStr::from_bytes_until_nul(&log).expect("a log ends in a zero byte");
    assert_eq!(said, c"error   : Undefined reference to 'far' in 'caller'");
}

/// A text with the functions and variables that two modules share.
fn part(version: &str, code: &str) -> std::ffi::CString {
    ptx::image(version, "sm_80", code)
}

/// The first module: declares `answer`, which the second one defines.
const FIRST: &str = "
.common .global .align 4 .u32 common;
.weak .global .align 4 .u32 chosen = 1;
.global .align 4 .u32 own = 2;
.extern .func (.param .b32 value) answer (.param .b32 seed);
.func (.param .b32 value) helper ()
{
    .reg .b32 %r<2>;
    ld.global.u32 %r1, [own];
    st.param.b32 [value], %r1;
    ret;
}
.visible .entry join (.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<3>;
    .param .b32 given;
    .param .b32 result;
    mov.u32 %r1, 4;
    st.param.b32 [given], %r1;
    call.uni (result), answer, (given);
    ld.param.b32 %r2, [result];
    call.uni (result), helper, ();
    ld.param.b32 %r3, [result];
    ld.global.u32 %r4, [chosen];
    ld.global.u32 %r5, [common];
    mad.lo.u32 %r6, %r3, 100, %r2;
    mad.lo.u32 %r6, %r4, 1000, %r6;
    mad.lo.u32 %r6, %r5, 10000, %r6;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r6;
    ret;
}
";

/// The second module: its `own` and `helper` differ, and its definition of `chosen` is stronger.
const SECOND: &str = "
.common .global .align 4 .u32 common;
.visible .global .align 4 .u32 chosen = 3;
.global .align 4 .u32 own = 5;
.func (.param .b32 value) helper ()
{
    .reg .b32 %r<2>;
    ld.global.u32 %r1, [own];
    st.param.b32 [value], %r1;
    st.global.u32 [common], %r1;
    ret;
}
.visible .func (.param .b32 value) answer (.param .b32 seed)
{
    .reg .b32 %r<4>;
    .param .b32 result;
    call.uni (result), helper, ();
    ld.param.b32 %r1, [result];
    ld.param.b32 %r2, [seed];
    add.u32 %r3, %r1, %r2;
    st.param.b32 [value], %r3;
    ret;
}
";

#[test]
fn modules_share_public_names_and_keep_their_own_in_either_order() {
    for swapped in [false, true] {
        let machine = Machine::new();
        let link = machine.link(&mut [], &mut []);
        // The result has the newer version.
        let mut parts = [part("7.0", FIRST), part("7.8", SECOND)];
        if swapped {
            parts.reverse();
        }
        for text in &parts {
            assert_eq!(machine.add_text(link, text), SUCCESS);
        }
        let (mut image, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
        assert_eq!(cu!(machine, cuLinkComplete(link, &mut image, &mut bytes)), SUCCESS);
        // SAFETY: the image lives as long as the linker, and has the reported size.
        let made = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
        let module = machine.load(CStr::from_bytes_with_nul(made).expect("one zero byte"));
        let mut function = CUfunction::NULL;
        let module = module.expect("what was linked loads");
        let found = cu!(machine, cuModuleGetFunction(&mut function, module, c"join".as_ptr()));
        assert_eq!(found, SUCCESS);
        let word = machine.zero();
        let mut out = word;
        let mut list = [(&raw mut out).cast()];
        let (list, none, stream) = (list.as_mut_ptr(), std::ptr::null_mut(), machine.stream());
        let launched =
            cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none));
        assert_eq!(launched, SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.peek(word), 53_209, "common 5, chosen 3, own 2, answer 5 + 4");
    }
}

#[test]
fn two_strong_definitions_of_a_name_are_refused() {
    let machine = Machine::new();
    let link = machine.link(&mut [], &mut []);
    let twice = part("7.0", ".visible .global .align 4 .u32 chosen = 3;\n");
    assert_eq!(machine.add_text(link, &twice), SUCCESS);
    assert_eq!(machine.add_text(link, &twice), CUresult::CUDA_ERROR_INVALID_SOURCE);
}

#[test]
fn a_function_with_another_signature_than_its_declaration_is_not_simulated() {
    let caller = part(
        "7.0",
        ".extern .func (.param .b64 result) consume(.param .b32 x);
        .visible .entry call() {
            .reg .b64 %rd1;
            .param .b32 given; .param .b64 got;
            st.param.b32 [given], 1;
            call (got), consume, (given);
            ld.param.b64 %rd1, [got];
            ret;
        }",
    );
    for definition in ["consume(.param .b32 x)", "(.param .b64 r) consume(.param .b64 x)"] {
        let callee = part("7.0", &format!(".visible .func {definition} {{ ret; }}"));
        for texts in [[&caller, &callee], [&callee, &caller]] {
            let machine = Machine::new();
            let link = machine.link(&mut [], &mut []);
            for text in texts {
                assert_eq!(machine.add_text(link, text), SUCCESS);
            }
            let (mut image, none) = (std::ptr::null_mut(), std::ptr::null_mut());
            let code = cu!(machine, cuLinkComplete(link, &mut image, none));
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
            let said = machine.diagnostics(DiagnosticKind::Unsupported);
            assert!(said[0].contains("`consume` with different signatures"), "{said:?}");
        }
    }
}

#[test]
fn a_linker_accepts_each_target_of_its_device() {
    use CUjit_target as T;
    let taken = |target: CUjit_target, compute_capability| {
        let mut config = retrograph_driver_sim::Config::default();
        config.compute_capability = compute_capability;
        let machine = Machine::with(config);
        let mut options = [CUjit_option::CU_JIT_TARGET];
        let mut values = [std::ptr::without_provenance_mut::<c_void>(target.0 as usize)];
        let mut link = CUlinkState::NULL;
        let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
        cu!(machine, cuLinkCreate_v2(1, names, places, &mut link)) == SUCCESS
    };
    assert!(taken(T::CU_TARGET_COMPUTE_90, (9, 0)) && taken(T::CU_TARGET_COMPUTE_90A, (9, 0)));
    assert!(taken(T::CU_TARGET_COMPUTE_103A, (10, 3)) && taken(T::CU_TARGET_COMPUTE_100F, (10, 3)));
    assert!(!taken(T::CU_TARGET_COMPUTE_80, (9, 0)) && !taken(T::CU_TARGET_COMPUTE_100A, (10, 3)));
    assert!(!taken(T::CU_TARGET_COMPUTE_103F, (10, 0)) && !taken(T::CU_TARGET_COMPUTE_90A, (8, 9)));
}

#[test]
fn a_linker_limits_the_registers_of_each_kernel() {
    let machine = Machine::new();
    let registers = std::ptr::without_provenance_mut(24);
    let link = machine.link(&mut [CUjit_option::CU_JIT_MAX_REGISTERS], &mut [registers]);
    let kernels = ".entry a() { ret; }\n.entry b() .maxnreg 16 { ret; }\n";
    assert_eq!(machine.add_text(link, &ptx::image("7.0", "sm_80", kernels)), SUCCESS);
    let (mut image, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
    assert_eq!(cu!(machine, cuLinkComplete(link, &mut image, &mut bytes)), SUCCESS);
    // SAFETY: the image lives as long as the linker, and ends in a zero byte.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
    assert!(text.contains(".maxnreg 24") && text.contains(".maxnreg 16"), "{text}");
}

/// A kernel with a grid barrier, as numba-cuda and nvcc compile it: block 0 reads a value that the
/// last block wrote before the barrier.
const MEETS: &str = "
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 grid, .param .b32 flags);
.visible .entry meet (.param .u64 out)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .param .b32 scope;
    .param .b64 grid;
    .param .b32 flags;
    .param .b32 code;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r1, 3;
    @%p1 bra MEET;
    st.global.u32 [%rd1], 41;
MEET:
    st.param.b32 [scope], 1;
    call.uni (grid), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %rd2, [grid];
    st.param.b64 [grid], %rd2;
    st.param.b32 [flags], 0;
    call.uni (code), cudaCGSynchronize, (grid, flags);
    ld.param.b32 %r2, [code];
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra END;
    ld.global.u32 %r3, [%rd1];
    add.u32 %r3, %r3, 1;
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%rd1], %r3;
END:
    ret;
}
";

/// An archive with one empty member, whose name is in a table of long names.
fn archive(member: &str) -> Vec<u8> {
    let header = |name: &str, bytes: usize| format!("{name:<48}{bytes:<10}`\n");
    let name = format!("{member:<29}\n");
    format!("!<arch>\n{}{name}{}", header("//", name.len()), header("/0", 0)).into_bytes()
}

impl Machine {
    fn add_library(&self, link: CUlinkState, bytes: &[u8]) -> CUresult {
        self.add_input(link, CUjitInputType::CU_JIT_INPUT_LIBRARY, c"library", bytes)
    }

    /// Completes a link. Returns a kernel of the result, or the code of the failed call.
    fn complete(&self, link: CUlinkState, kernel: &CStr) -> Result<CUfunction, CUresult> {
        let (mut image, mut function) = (std::ptr::null_mut::<c_void>(), CUfunction::NULL);
        cu!(self, cuLinkComplete(link, &mut image, std::ptr::null_mut())).ok()?;
        // SAFETY: the image lives as long as the linker, and ends in a zero byte.
        let module = self.load(unsafe { CStr::from_ptr(image.cast()) })?;
        cu!(self, cuModuleGetFunction(&mut function, module, kernel.as_ptr())).ok()?;
        Ok(function)
    }
}

#[test]
fn libcudadevrt_synchronizes_grids_in_launches_and_graphs() {
    let machine = Machine::new();
    let link = machine.link(&mut [], &mut []);
    assert_eq!(machine.add_library(link, &archive("cuda_device_runtime.o/")), SUCCESS);
    assert_eq!(machine.add_text(link, &part("7.0", MEETS)), SUCCESS);
    let kernel = machine.complete(link, c"meet").expect("the link provides the functions");
    let (word, stream, none) = (machine.zero(), machine.stream(), std::ptr::null_mut());
    let mut out = word;
    let mut list = [(&raw mut out).cast()];
    let list = list.as_mut_ptr();
    let launch =
        || cu!(machine, cuLaunchCooperativeKernel(kernel, 4, 1, 1, 1, 1, 1, 0, stream, list));
    assert_eq!((launch(), machine.sync(stream)), (SUCCESS, SUCCESS));
    assert_eq!(machine.peek(word), 42);
    // A captured launch is cooperative, too.
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(launch(), SUCCESS);
    let (ended, graph) = machine.end(stream);
    assert_eq!(ended, SUCCESS);
    let mut exec = CUgraphExec::NULL;
    assert_eq!(cu!(machine, cuGraphInstantiateWithFlags(&mut exec, graph, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!((machine.sync(stream), machine.peek(word)), (SUCCESS, 42));
    // An ordinary launch has no grid barrier, and the kernel ignores the result.
    let plain = cu!(machine, cuLaunchKernel(kernel, 4, 1, 1, 1, 1, 1, 0, stream, list, none));
    assert_eq!((plain, machine.sync(stream)), (SUCCESS, SUCCESS));
}

#[test]
fn functions_of_libcudadevrt_need_the_archive() {
    let machine = Machine::new();
    let add = |library: Option<&str>, text: &str| {
        let link = machine.link(&mut [], &mut []);
        let added = library.map(|member| machine.add_library(link, &archive(member)));
        assert_eq!(machine.add_text(link, &part("7.0", text)), SUCCESS);
        (added, machine.complete(link, c"meet").err())
    };
    let unsupported = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    let missing = Some(CUresult::CUDA_ERROR_INVALID_SOURCE);
    assert_eq!(add(None, MEETS), (None, missing));
    assert_eq!(add(Some("other.o/"), MEETS), (Some(unsupported), missing));
    // The archive has functions that the simulator does not support.
    let other = MEETS.replace("cudaCGSynchronize", "cudaDeviceSynchronizeOfGrid");
    let library = Some("cuda_device_runtime.o/");
    assert_eq!(add(library, &other), (Some(SUCCESS), Some(unsupported)));
    let own = MEETS.replace("cudaCGSynchronize", "meet_all");
    assert_eq!(add(library, &own), (Some(SUCCESS), missing));
    assert_eq!(machine.load(&part("7.0", MEETS)), Err(CUresult::CUDA_ERROR_INVALID_PTX));
}
