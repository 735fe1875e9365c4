//! The undocumented tables, called without the CUDA runtime.

use std::ffi::c_void;
use std::process::Command;
use std::sync::Mutex;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUcontext, CUresult, CUuuid};

use crate::client::CLIENT;
use crate::{library, run, text};

const CUDART: u128 = 0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9;
const HOOKS: u128 = 0xa094798c_2e74_2e74_93f2_0800200c0a66;
const LOCAL: u128 = 0x42d85a81_23f6_cb47_8298_f6e78a3aecdc;
const STORAGE: u128 = 0xc693336e_1121_df11_a8c3_68f355d89593;
const CHECKS: u128 = 0x263e8860_7cd2_6143_92f6_bbd5006dfa7e;
const INTEGRITY: u128 = 0xd4082055_bde6_704b_8d34_ba123c66e1f2;
/// The variable with the key of the integrity check.
const KEY: &str = "RETROGRAPH_SIM_RUNTIME_KEY";
/// A table that the runtime 13.0 works without.
const OPTIONAL: u128 = 0xf8cff951_2146_8b4e_b9e2_fb469e7c0dd9;

/// Runs an ignored test of this file as a process with the library, and returns its output.
/// The key of the integrity check is `key`.
fn process(name: &str, key: Option<&str>) -> String {
    let library = library();
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    command.args(["--exact", &format!("export_tables::{name}"), "--ignored", "--nocapture"]);
    command.env("LD_LIBRARY_PATH", library.path()).env(CLIENT, "1");
    command.env_remove(KEY).envs(key.map(|key| (KEY, key)));
    text(&run(&mut command))
}

/// A table.
struct Table(*const *const c_void);

impl Table {
    fn find(id: u128) -> Result<Self, CUresult> {
        assert!(std::env::var_os(CLIENT).is_some(), "it needs the library in its path");
        let id = CUuuid { bytes: id.to_be_bytes().map(|byte| byte as std::ffi::c_char) };
        let mut table = std::ptr::null();
        // SAFETY: both pointers are valid during the call.
        match unsafe { sys::cuGetExportTable(&mut table, &id) } {
            CUresult::CUDA_SUCCESS => Ok(Self(table.cast())),
            code => Err(code),
        }
    }

    /// The address in a slot.
    fn slot(&self, slot: usize) -> *const c_void {
        // SAFETY: a table has at least 32 slots.
        unsafe { *self.0.add(slot) }
    }
}

/// The function in a slot of a table.
macro_rules! slot {
    ($table:expr, $slot:literal, $type:ty) => {
        // SAFETY: the slot holds a function of this type.
        unsafe { std::mem::transmute::<*const c_void, $type>($table.slot($slot)) }
    };
}

type Refusing = unsafe extern "C" fn() -> CUresult;
type Destroyed = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);
type Put = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void, Option<Destroyed>) -> CUresult;
type Remove = unsafe extern "C" fn(CUcontext, *mut c_void) -> CUresult;
type Get = unsafe extern "C" fn(*mut *mut c_void, CUcontext, *mut c_void) -> CUresult;

#[test]
fn unknown_tables_and_slots_are_refused_by_name() {
    let said = process("refused", None);
    for line in [
        "2 call(s) were not simulated and returned 801:\n",
        "       1 cuGetExportTable 01000000-0000-0000-0000-000000000000\n",
        "       1 cuGetExportTable 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9 slot 9\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn refused() {
    for (id, slots) in [(CUDART, 13), (HOOKS, 7), (LOCAL, 4), (CHECKS, 4), (INTEGRITY, 3)] {
        let table = Table::find(id).expect("the table is there");
        assert_eq!(table.slot(0).addr(), slots * size_of::<usize>());
    }
    assert!(Table::find(STORAGE).is_ok());
    for id in [OPTIONAL, 1 << 120] {
        assert_eq!(Table::find(id).err(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    }
    let unknown = slot!(Table::find(CUDART).unwrap(), 9, Refusing);
    // SAFETY: the function ignores its arguments.
    assert_eq!(unsafe { unknown() }, CUresult::CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn the_handle_of_a_primary_context_is_known_before_the_context_exists() {
    process("primary_context", None);
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn primary_context() {
    type Primary = unsafe extern "C" fn(*mut CUcontext, i32) -> CUresult;
    let primary = slot!(Table::find(CUDART).unwrap(), 2, Primary);
    let (mut known, mut flags, mut active) = (std::ptr::null_mut(), 0, 1);
    // SAFETY: all pointers are valid during their calls.
    unsafe {
        assert_eq!(sys::cuInit(0), CUresult::CUDA_SUCCESS);
        assert_eq!(primary(&mut known, 0), CUresult::CUDA_SUCCESS);
        assert_eq!(primary(&mut known, 1), CUresult::CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(primary(std::ptr::null_mut(), 0), CUresult::CUDA_ERROR_INVALID_VALUE);
        let code = sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active);
        assert_eq!((code, active), (CUresult::CUDA_SUCCESS, 0));
    }
    assert_eq!(CudaContext::new(0).expect("a context").cu_ctx(), known);
}

#[test]
fn values_of_a_context_end_with_the_context() {
    process("storage", None);
}

/// The calls of `note`.
static NOTED: Mutex<Vec<[usize; 3]>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(context: CUcontext, key: *mut c_void, value: *mut c_void) {
    NOTED.lock().unwrap().push([context.addr(), key.addr(), value.addr()]);
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn storage() {
    let table = Table::find(STORAGE).unwrap();
    let (put, remove, get) = (slot!(table, 0, Put), slot!(table, 1, Remove), slot!(table, 2, Get));
    let [a, b, value, other] = [0x10, 0x20, 0x30, 0x40].map(std::ptr::without_provenance_mut);
    let none = std::ptr::null_mut();
    let mut found = none;
    let success = CUresult::CUDA_SUCCESS;
    // SAFETY: all pointers are valid during their calls; keys and values are only numbers.
    unsafe {
        assert_eq!(sys::cuInit(0), success);
        assert_eq!(get(&mut found, none.cast(), a), CUresult::CUDA_ERROR_INVALID_CONTEXT);
        // Its drop would release the context.
        let context = std::mem::ManuallyDrop::new(CudaContext::new(0).expect("a context"));
        let context = context.cu_ctx();
        assert_eq!(get(&mut found, context, a), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(put(context, a, other, Some(note)), success);
        assert_eq!(put(none.cast(), a, value, Some(note)), success, "the current context");
        assert_eq!(put(context, b, other, Some(note)), success);
        assert_eq!((get(&mut found, none.cast(), a), found), (success, value));
        assert_eq!(remove(context, b), success);
        assert_eq!(get(&mut found, context, b), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(*NOTED.lock().unwrap(), [[0; 3]; 0]);
        assert_eq!(sys::cuDevicePrimaryCtxReset_v2(0), success);
        let gone = [context.addr(), a.addr(), value.addr()];
        assert_eq!(
            *NOTED.lock().unwrap(),
            [gone],
            "the value that was neither replaced nor removed"
        );
        assert_eq!(get(&mut found, context, a), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
}

#[test]
fn a_host_function_ends_no_values() {
    let said = process("host_function", None);
    assert!(said.contains("host function"), "{said}");
}

/// Resets the primary context, which a host function may not do.
unsafe extern "C" fn reset(code: *mut c_void) {
    // SAFETY: the test passes a code that lives until the function has run.
    unsafe { *code.cast::<CUresult>() = sys::cuDevicePrimaryCtxReset_v2(0) };
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn host_function() {
    let put = slot!(Table::find(STORAGE).unwrap(), 0, Put);
    let context = std::mem::ManuallyDrop::new(CudaContext::new(0).expect("a context"));
    let (key, mut code) = (std::ptr::without_provenance_mut(0x10), CUresult::CUDA_SUCCESS);
    // SAFETY: all pointers are valid during their calls; keys and values are only numbers.
    unsafe {
        assert_eq!(put(context.cu_ctx(), key, key, Some(note)), CUresult::CUDA_SUCCESS);
        let launched =
            sys::cuLaunchHostFunc(std::ptr::null_mut(), Some(reset), (&raw mut code).cast());
        assert_eq!(launched, CUresult::CUDA_SUCCESS);
        let _ = sys::cuCtxSynchronize();
    }
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_PERMITTED);
    assert_eq!(*NOTED.lock().unwrap(), [[0; 3]; 0], "the context exists");
}

#[test]
fn the_tables_answer_the_checks_of_the_runtime() {
    process("checks", Some(&"5c".repeat(16)));
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn checks() {
    type Check = unsafe extern "C" fn(u32, u64, *mut [u8; 16]) -> CUresult;
    type Words = unsafe extern "C" fn(*mut *const u32, *mut usize);
    let check = slot!(Table::find(INTEGRITY).unwrap(), 1, Check);
    let answer = |version, time| {
        let mut answer = [0; 16];
        // SAFETY: the place is valid during the call.
        assert_eq!(unsafe { check(version, time, &mut answer) }, CUresult::CUDA_SUCCESS);
        answer
    };
    // SAFETY: `cuInit` takes no pointer.
    assert_eq!(unsafe { sys::cuInit(0) }, CUresult::CUDA_SUCCESS);
    assert_ne!(answer(13002, 1), answer(13003, 1));
    assert_eq!(answer(13002, 1), answer(13002, 1));
    assert_ne!(answer(13002, 1), answer(13002, 2), "the time is part of it");
    let hooks = Table::find(HOOKS).unwrap();
    for (words, count) in [(slot!(hooks, 2, Words), 1024), (slot!(hooks, 6, Words), 14)] {
        let (mut first, mut found) = (std::ptr::null(), 0);
        // SAFETY: both places are valid during the call, which writes an array.
        let words = unsafe {
            words(&mut first, &mut found);
            std::slice::from_raw_parts(first, found)
        };
        assert_eq!(words, vec![0; count], "no tool asks for callbacks");
    }
    type Context = unsafe extern "C" fn(CUcontext, *mut u32, *mut *const c_void) -> CUresult;
    type Process = unsafe extern "C" fn() -> u32;
    let table = Table::find(CHECKS).unwrap();
    let (context, process) = (slot!(table, 2, Context), slot!(table, 3, Process));
    let (mut flags, null) = (1, std::ptr::null_mut());
    // SAFETY: the flags are valid during the call, and the other pointers are null.
    let code = unsafe { context(null, &mut flags, null.cast()) };
    assert_eq!((code, flags), (CUresult::CUDA_SUCCESS, 0));
    // SAFETY: the function takes no argument.
    assert_eq!(unsafe { process() }, 0);
}

#[test]
fn without_a_key_the_integrity_check_is_refused_and_the_report_names_the_setting() {
    let output = process("check_without_a_key", None);
    assert!(output.contains(KEY), "{output}");
}

#[test]
#[ignore = "a process of its own, started by a test of this file"]
fn check_without_a_key() {
    type Check = unsafe extern "C" fn(u32, u64, *mut [u8; 16]) -> CUresult;
    let check = slot!(Table::find(INTEGRITY).unwrap(), 1, Check);
    let mut answer = [7; 16];
    // SAFETY: the place is valid during the call.
    let code = unsafe { check(13002, 1, &mut answer) };
    assert_eq!((code, answer), (CUresult::CUDA_ERROR_NOT_SUPPORTED, [7; 16]));
}
