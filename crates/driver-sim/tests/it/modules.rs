//! Modules: images that load, and the errors of images that do not.

use std::ffi::{CStr, c_void};

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Loads with both logs. Returns the code, the info log and the error log.
fn load_logged(machine: &Machine, image: &CStr, capacity: usize) -> (CUresult, String, String) {
    let (mut info, mut error) = (vec![b'?'; capacity], vec![b'?'; capacity]);
    let mut options = [
        CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let size: *mut c_void = std::ptr::without_provenance_mut(capacity);
    let mut values = [info.as_mut_ptr().cast(), size, error.as_mut_ptr().cast(), size];
    let (mut module, text) = (CUmodule::NULL, image.as_ptr().cast());
    let (names, places) = (options.as_mut_ptr(), values.as_mut_ptr());
    let code = cu!(machine, cuModuleLoadDataEx(&mut module, text, 4, names, places));
    let log = |bytes: &[u8], filled: *mut c_void| {
        let text = CStr::from_bytes_until_nul(bytes).expect("a log ends in a zero byte");
        assert_eq!(text.count_bytes(), filled.addr(), "the size that is written back");
        text.to_str().expect("UTF-8").to_owned()
    };
    (code, log(&info, values[1]), log(&error, values[3]))
}

#[test]
fn versions_beyond_the_driver_and_targets_beyond_the_device_are_refused() {
    let load = |driver_version, compute_capability, version, target| {
        let mut config = Config::default();
        config.driver_version = driver_version;
        config.compute_capability = compute_capability;
        Machine::with(config).load(&ptx::small(version, target)).map(|_| ())
    };
    let (version, target) =
        (CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUresult::CUDA_ERROR_INVALID_PTX);
    assert_eq!(load(13000, (9, 0), "9.0", "sm_90"), Ok(()));
    assert_eq!(load(12090, (9, 0), "9.0", "sm_90"), Err(version));
    assert_eq!(load(12090, (9, 0), "8.8", "sm_90"), Ok(()));
    assert_eq!(load(13000, (9, 0), "9.1", "sm_90"), Err(version));
    assert_eq!(load(13010, (9, 0), "9.1", "sm_90"), Ok(()));
    assert_eq!(load(13010, (9, 0), "9.2", "sm_90"), Err(version));
    assert_eq!(load(13050, (9, 0), "9.5", "sm_90"), Ok(()));
    assert_eq!(load(13000, (8, 6), "8.0", "sm_90"), Err(target));
    assert_eq!(load(13000, (12, 0), "8.0", "sm_90"), Ok(()), "plain targets run on later devices");
    assert_eq!(load(13000, (10, 0), "8.0", "sm_90a"), Err(target), "exact ones do not");
}

#[test]
fn the_log_names_the_line_of_an_error() {
    let machine = Machine::new();
    let image = ptx::image("7.0", "sm_80", ".visible .entry bad()\n{\n    no.such.thing %r1;\n}\n");
    let (code, info, error) = load_logged(&machine, &image, 400);
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(error.contains('6') && info.is_empty(), "{error}");
    let (_, _, short) = load_logged(&machine, &image, 10);
    assert_eq!(short, error[..9], "a log that is too small is filled");
    let (code, info, error) = load_logged(&machine, &ptx::module(), 400);
    assert_eq!(code, SUCCESS);
    assert!(info.contains("simulated") && error.is_empty());
}

#[test]
fn a_cubin_is_reported_as_unsupported() {
    let machine = Machine::new();
    assert_eq!(machine.load(c"\x7fELF\x02\x01"), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), 1);
    assert!(machine.load(&ptx::small("7.0", "sm_80")).is_ok(), "a later image loads");
}

#[test]
fn an_instruction_that_only_the_simulator_lacks_is_not_called_invalid() {
    let text = |name: &str| {
        let head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n";
        std::ffi::CString::new(format!("{head}{name};\nret;\n}}\n")).unwrap()
    };
    let machine = Machine::new();
    let invalid = machine.load(&text("mbarier.inval.b64"));
    assert_eq!(invalid, Err(CUresult::CUDA_ERROR_INVALID_PTX));
    let lacking = machine.load(&text("tcgen05.fence::before_thread_sync"));
    assert_eq!(lacking, Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    let said = machine.diagnostics(DiagnosticKind::Unsupported);
    assert!(said[0].contains("tcgen05"), "{said:?}");
}

#[test]
fn invalid_image_bytes_are_refused() {
    let machine = Machine::new();
    assert_eq!(machine.load(c"hello"), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    let mut module = CUmodule::NULL;
    assert_eq!(cu!(machine, cuModuleLoadData(&mut module, std::ptr::null())), INVALID_VALUE);
}

#[test]
fn functions_and_variables_are_found_by_name() {
    let machine = Machine::new();
    assert_eq!(machine.function(c"store"), machine.function(c"store"));
    let (mut function, not_found) = (CUfunction::NULL, CUresult::CUDA_ERROR_NOT_FOUND);
    let module = machine.module;
    let missing = cu!(machine, cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
    assert_eq!(missing, not_found);
    let (mut address, mut bytes, name) = (0, 0, c"counter".as_ptr());
    let code = cu!(machine, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name));
    assert_eq!((code, bytes), (SUCCESS, 4));
    assert_eq!(machine.peek(address), 7, "the initial value");
}

#[test]
fn functions_return_their_parameters_and_attributes() {
    use CUfunction_attribute as A;
    let machine = Machine::new();
    let (store, tile) = (machine.function(c"store"), machine.function(c"tile"));
    let info = machine.simulator.table().cuFuncGetParamInfo.expect("driver 13.0 has it");
    let parameter = |index| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the pointers are valid during the call.
        let code = unsafe { info(store, index, &mut offset, &mut size) };
        code.ok().map(|()| (offset, size))
    };
    assert_eq!([parameter(0), parameter(1)], [Ok((0, 8)), Ok((8, 4))]);
    assert_eq!(parameter(2), Err(INVALID_VALUE));
    let attribute = |attribute, function| {
        let mut value = -9;
        assert_eq!(cu!(machine, cuFuncGetAttribute(&mut value, attribute, function)), SUCCESS);
        value
    };
    assert_eq!(attribute(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, store), 1024);
    let most = attribute(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, tile);
    assert_eq!(most, 1024, "that it needs 64 is another limit");
    assert_eq!(attribute(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, tile), 1024);
    assert_eq!(attribute(A::CU_FUNC_ATTRIBUTE_PTX_VERSION, store), 80);
    assert_eq!(attribute(A::CU_FUNC_ATTRIBUTE_BINARY_VERSION, store), 90);
    assert!((1..=255).contains(&attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS, store)));
}

#[test]
fn optional_functions_depend_on_the_version() {
    let table = |driver_version| {
        *Machine::with(with(Config::default(), |it| it.driver_version = driver_version))
            .simulator
            .table()
    };
    assert!(table(12000).cuFuncGetParamInfo.is_none());
    assert!(table(12030).cuFuncGetName.is_some() && table(12030).cuFuncGetParamInfo.is_none());
    assert!(table(12040).cuFuncGetParamInfo.is_some());
}

#[test]
fn a_graph_whose_module_was_unloaded_is_undefined() {
    let machine = Machine::new();
    let (graph, word, stream) = (machine.graph(), machine.zero(), machine.stream());
    machine.add(graph, c"store", word, 1, &[]);
    let exec = machine.instantiate(graph).unwrap();
    assert_eq!(cu!(machine, cuModuleUnload(machine.module)), SUCCESS);
    let launch = cu!(machine, cuGraphLaunch(exec, stream));
    assert_eq!(launch, CUresult::CUDA_ERROR_UNKNOWN);
    let said = machine.diagnostics(DiagnosticKind::Undefined);
    assert!(said.len() == 1 && said[0].contains("`store`"), "{said:?}");
}

#[test]
fn a_load_with_a_null_module_pointer_changes_nothing() {
    let machine = Machine::new();
    let before = machine.simulator.live().modules;
    let (image, nowhere) = (ptx::module(), std::ptr::null_mut());
    let code = cu!(machine, cuModuleLoadData(nowhere, image.as_ptr().cast()));
    assert_eq!(code, INVALID_VALUE);
    assert_eq!(machine.simulator.live().modules, before);
}

#[test]
fn a_file_of_ptx_may_end_in_zero_bytes() {
    let machine = Machine::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("small.ptx");
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("the file can be written");
        let name = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        let mut module = CUmodule::NULL;
        cu!(machine, cuModuleLoad(&mut module, name.as_ptr()))
    };
    let mut text = ptx::small("7.0", "sm_80").into_bytes();
    text.extend([0, 0, b'!']);
    assert_eq!(load(&text), SUCCESS);
    assert_eq!(load(b"\x7fELF\x02\x01"), CUresult::CUDA_ERROR_NOT_SUPPORTED, "a cubin");
}

/// Loads with a maximum of `registers` registers. Returns the registers per thread of `wide`.
fn registers_of_wide(machine: &Machine, image: &CStr, registers: usize) -> i32 {
    let mut option = CUjit_option::CU_JIT_MAX_REGISTERS;
    let mut value = std::ptr::without_provenance_mut::<c_void>(registers);
    let (mut module, mut function, mut found) = (CUmodule::NULL, CUfunction::NULL, 0);
    let text = image.as_ptr().cast();
    let code = cu!(machine, cuModuleLoadDataEx(&mut module, text, 1, &mut option, &mut value));
    assert_eq!(code, SUCCESS);
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"wide".as_ptr()));
    assert_eq!(code, SUCCESS);
    let name = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
    assert_eq!(cu!(machine, cuFuncGetAttribute(&mut found, name, function)), SUCCESS);
    found
}

#[test]
fn registers_have_the_limit_of_the_load() {
    let machine = Machine::new();
    // All loaded words are live until the last load.
    let loads: String =
        (0..60).map(|i| format!("ld.global.u32 %r{i}, [%rd0+{}];\n", 4 * i)).collect();
    let stores: String =
        (0..60).map(|i| format!("st.global.u32 [%rd0+{}], %r{i};\n", 4 * (59 - i))).collect();
    let head = ".reg .b32 %r<60>; .reg .b64 %rd<1>;\nld.param.u64 %rd0, [x];\n";
    let body = format!(".visible .entry wide(.param .u64 x)\n{{\n{head}{loads}{stores}ret;\n}}\n");
    let image = ptx::image("7.0", "sm_80", &body);
    assert!(registers_of_wide(&machine, &image, 255) > 60);
    assert_eq!(registers_of_wide(&machine, &image, 38), 38);
}

#[test]
fn constant_variables_have_a_size_limit() {
    let machine = Machine::new();
    let constants = ".const .align 1 .b8 a[3];\n.const .align 4 .b32 b[2];\n";
    let image =
        ptx::image("7.0", "sm_80", &(constants.to_owned() + ".visible .entry k() { ret; }"));
    let module = machine.load(&image).expect("it loads");
    let (mut function, mut bytes) = (CUfunction::NULL, 0);
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    assert_eq!(code, SUCCESS);
    let name = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES;
    assert_eq!(cu!(machine, cuFuncGetAttribute(&mut bytes, name, function)), SUCCESS);
    assert_eq!(bytes, 12);
}

/// Images are parsed and decoded once per process, unless kernels depend on addresses of variables.
#[test]
fn each_module_of_an_image_has_its_own_variables() {
    let image = ptx::image(
        "7.0",
        "sm_80",
        ".global .align 4 .u32 calls;
.visible .entry count(.param .u64 address, .param .u32 unused)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address];
    ld.global.u32 %r1, [calls];
    add.u32 %r2, %r1, 1;
    st.global.u32 [calls], %r2;
    st.global.u32 [%rd1], %r2;
    ret;
}
",
    );
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let count = |module, calls| {
        let (mut function, mut address, mut unused) = (CUfunction::NULL, word, 0u32);
        let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"count".as_ptr()));
        assert_eq!(code, SUCCESS);
        let mut list = [(&raw mut address).cast(), (&raw mut unused).cast()];
        let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
        let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none));
        assert_eq!((code, machine.sync(stream)), (SUCCESS, SUCCESS));
        assert_eq!(machine.peek(word), calls);
    };
    let [one, other] = [(); 2].map(|()| machine.load(&image).expect("a complete image"));
    count(one, 1);
    count(one, 2);
    count(other, 1);
}

#[test]
fn variables_beyond_the_memory_of_their_space_are_refused_by_name() {
    use CUresult as R;
    let machine = Machine::new();
    let entry = |body: &str| format!(".visible .entry e() {{ {body} ret; }}");
    let module = |variable: &str| format!("{variable} {}", entry(""));
    let function = |body: &str| {
        let call = ".func f() { .reg .u32 a; ".to_owned() + body + " call f; ret; }";
        call + &entry("call f;")
    };
    let konst = R::CUDA_ERROR_INVALID_PTX;
    // No recorded trace has the results of a driver for these.
    let [shared, local, global] = [R::CUDA_ERROR_NOT_SUPPORTED; 3];
    let cases = [
        (entry(".shared .b8 most[233472];"), None),
        (entry(".shared .b8 most[233472]; .shared .b8 y[1];"), Some(shared)),
        (entry(".shared .b8 most[4294967295]; .shared .b8 y[1];"), Some(shared)),
        // No kernel uses it.
        (module(".shared .b8 most[4294967295];"), None),
        (module(".const .b8 most[65536];"), None),
        (module(".const .b8 most[65536]; .const .b8 y;"), Some(konst)),
        (module(".const .b8 most[1000000000];"), Some(konst)),
        (entry(".local .b8 most[524288];"), None),
        (entry(".local .b8 most[524289];"), Some(local)),
        (entry(".local .b8 most[4294967295];"), Some(local)),
        (entry(".local .b64 most[4294967295];"), Some(local)),
        (module(".local .b8 most[4294967295];"), Some(local)),
        (function(".local .b8 most[4294967295];"), Some(local)),
        (module(".global .b64 most[4294967295];"), Some(global)),
        (module(".global .attribute(.managed) .b64 most[4294967295];"), Some(global)),
    ];
    for (body, expected) in cases {
        let (code, _, log) = load_logged(&machine, &ptx::image("7.0", "sm_80", &body), 300);
        assert_eq!(code, expected.unwrap_or(SUCCESS), "{body}: {log}");
        assert!(expected.is_none() || log.contains("`most`"), "{body}: {log}");
    }
    assert!(machine.load(&ptx::small("7.0", "sm_80")).is_ok(), "the simulator goes on");
}
