//! Settings of core dumps: values of the process and of a context, and refused settings.

use std::ffi::c_void;
use std::ptr::null_mut;

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::CUcoredumpSettings as S;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu, cu_optional};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// The scope of settings.
#[derive(Clone, Copy)]
enum Scope {
    Process,
    Context,
}

impl Machine {
    fn set_raw(&self, scope: Scope, setting: S, value: *mut c_void, mut size: usize) -> CUresult {
        match scope {
            Scope::Process => {
                cu_optional!(self, cuCoredumpSetAttributeGlobal(setting, value, &mut size))
            }
            Scope::Context => cu_optional!(self, cuCoredumpSetAttribute(setting, value, &mut size)),
        }
    }

    fn get_raw(&self, scope: Scope, setting: S, value: *mut c_void, size: &mut usize) -> CUresult {
        match scope {
            Scope::Process => {
                cu_optional!(self, cuCoredumpGetAttributeGlobal(setting, value, size))
            }
            Scope::Context => cu_optional!(self, cuCoredumpGetAttribute(setting, value, size)),
        }
    }

    fn set_core_dump(&self, scope: Scope, setting: S, mut bytes: Vec<u8>) -> CUresult {
        let size = bytes.len();
        self.set_raw(scope, setting, bytes.as_mut_ptr().cast(), size)
    }

    fn flag(&self, scope: Scope, setting: S) -> bool {
        // Not a bool, to detect a call that writes nothing.
        let (mut value, mut size) = (7u8, 1);
        let code = self.get_raw(scope, setting, (&raw mut value).cast(), &mut size);
        assert_eq!(code, SUCCESS);
        assert!(value <= 1, "{value}");
        value == 1
    }

    fn core_dump_flags(&self, scope: Scope) -> u32 {
        let (mut value, mut size) = (u32::MAX, 4);
        let setting = S::CU_COREDUMP_GENERATION_FLAGS;
        assert_eq!(self.get_raw(scope, setting, (&raw mut value).cast(), &mut size), SUCCESS);
        value
    }

    fn text(&self, scope: Scope, setting: S) -> String {
        let (mut bytes, mut size) = ([1u8; 1024], 1024);
        let code = self.get_raw(scope, setting, bytes.as_mut_ptr().cast(), &mut size);
        assert_eq!(code, SUCCESS);
        let text = bytes.split(|byte| *byte == 0).next().expect("a text that ends");
        String::from_utf8(text.to_vec()).expect("UTF-8")
    }
}

#[test]
fn settings_of_the_process_round_trip() {
    let machine = Machine::new();
    let scope = Scope::Process;
    assert!(machine.flag(scope, S::CU_COREDUMP_TRIGGER_HOST));
    for setting in [
        S::CU_COREDUMP_LIGHTWEIGHT,
        S::CU_COREDUMP_ENABLE_ON_EXCEPTION,
        S::CU_COREDUMP_ENABLE_USER_TRIGGER,
    ] {
        assert!(!machine.flag(scope, setting), "{setting:?}");
    }
    let process = format!(".{}", std::process::id());
    for (setting, start) in [(S::CU_COREDUMP_FILE, "core."), (S::CU_COREDUMP_PIPE, "corepipe.")] {
        let text = machine.text(scope, setting);
        assert!(text.starts_with(&format!("{start}cuda.")) && text.ends_with(&process), "{text}");
    }

    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_TRIGGER_HOST, vec![0]), SUCCESS);
    // A text ends where its size ends, or at a zero byte.
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_FILE, b"corefile".to_vec()), SUCCESS);
    assert_eq!(
        machine.set_core_dump(scope, S::CU_COREDUMP_PIPE, b"corepipe\0rest".to_vec()),
        SUCCESS
    );
    assert!(!machine.flag(scope, S::CU_COREDUMP_TRIGGER_HOST));
    assert_eq!(machine.text(scope, S::CU_COREDUMP_FILE), "corefile");
    assert_eq!(machine.text(scope, S::CU_COREDUMP_PIPE), "corepipe");
    assert!(machine.simulator.diagnostics().is_empty());
}

#[test]
fn two_settings_are_names_for_flags() {
    let machine = Machine::new();
    let scope = Scope::Process;
    assert_eq!(machine.core_dump_flags(scope), CU_COREDUMP_DEFAULT_FLAGS);
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_LIGHTWEIGHT, vec![1]), SUCCESS);
    assert_eq!(machine.core_dump_flags(scope), CU_COREDUMP_LIGHTWEIGHT_FLAGS);
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_TRIGGER_HOST, vec![0]), SUCCESS);
    assert_eq!(
        machine.core_dump_flags(scope),
        CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT
    );
    let some = CU_COREDUMP_SKIP_LOCAL_MEMORY.to_ne_bytes().to_vec();
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_GENERATION_FLAGS, some), SUCCESS);
    assert!(!machine.flag(scope, S::CU_COREDUMP_LIGHTWEIGHT));
    assert!(machine.flag(scope, S::CU_COREDUMP_TRIGGER_HOST));
}

#[test]
fn a_context_begins_with_a_copy_of_the_settings_of_the_process() {
    let machine = Machine::new();
    let (process, context) = (Scope::Process, Scope::Context);
    assert_eq!(machine.set_core_dump(process, S::CU_COREDUMP_FILE, b"all".to_vec()), SUCCESS);
    assert_eq!(machine.set_core_dump(process, S::CU_COREDUMP_LIGHTWEIGHT, vec![1]), SUCCESS);
    // The context existed before, and has no file name.
    assert_eq!(machine.text(context, S::CU_COREDUMP_FILE), "");
    assert!(!machine.flag(context, S::CU_COREDUMP_LIGHTWEIGHT));
    let mut second = CUcontext::NULL;
    assert_eq!(cu!(machine, cuCtxCreate_v2(&mut second, 0, 0)), SUCCESS);
    assert_eq!(machine.text(context, S::CU_COREDUMP_FILE), "all");
    assert_eq!(machine.set_core_dump(context, S::CU_COREDUMP_FILE, b"one".to_vec()), SUCCESS);
    assert_eq!(machine.set_core_dump(context, S::CU_COREDUMP_TRIGGER_HOST, vec![0]), SUCCESS);
    assert_eq!(machine.text(process, S::CU_COREDUMP_FILE), "all");
    assert_eq!(machine.text(context, S::CU_COREDUMP_FILE), "one");
    // One flag of a context changes; it keeps the others.
    assert!(machine.flag(process, S::CU_COREDUMP_TRIGGER_HOST));
    assert!(machine.flag(context, S::CU_COREDUMP_LIGHTWEIGHT));
    assert!(!machine.flag(context, S::CU_COREDUMP_TRIGGER_HOST));
}

#[test]
fn a_text_needs_room_without_its_final_zero() {
    let machine = Machine::new();
    let (scope, file) = (Scope::Process, S::CU_COREDUMP_FILE);
    assert_eq!(machine.set_core_dump(scope, file, b"core".to_vec()), SUCCESS);
    let mut bytes = [7u8; 6];
    let value = bytes.as_mut_ptr().cast();
    assert_eq!(machine.get_raw(scope, file, value, &mut 3), INVALID_VALUE);
    assert_eq!(machine.get_raw(scope, file, value, &mut 4), SUCCESS);
    assert_eq!(machine.get_raw(Scope::Context, file, null_mut(), &mut 0), SUCCESS);
    assert_eq!(&bytes, b"core\x07\x07");
    assert_eq!(machine.get_raw(scope, file, value, &mut 6), SUCCESS);
    assert_eq!(&bytes, b"core\0\x07");
}

#[test]
fn nothing_enables_core_dumps() {
    let machine = Machine::new();
    for setting in [S::CU_COREDUMP_ENABLE_ON_EXCEPTION, S::CU_COREDUMP_ENABLE_USER_TRIGGER] {
        assert_eq!(machine.set_core_dump(Scope::Process, setting, vec![0]), SUCCESS);
        assert_eq!(machine.set_core_dump(Scope::Process, setting, vec![1]), NOT_SUPPORTED);
        assert!(!machine.flag(Scope::Process, setting));
    }
    assert_eq!(
        machine.set_core_dump(Scope::Context, S::CU_COREDUMP_ENABLE_ON_EXCEPTION, vec![1]),
        NOT_SUPPORTED
    );
    assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), 3);

    // A context whose flags enable core dumps does not report them as disabled.
    for flags in [CU_CTX_COREDUMP_ENABLE, CU_CTX_USER_COREDUMP_ENABLE] {
        let (mut context, mut kept) = (CUcontext::NULL, 0);
        assert_eq!(cu!(machine, cuCtxCreate_v2(&mut context, flags, 0)), SUCCESS);
        assert_eq!(cu!(machine, cuCtxGetFlags(&mut kept)), SUCCESS);
        assert_eq!(kept, CU_CTX_COREDUMP_ENABLE);
        let (mut value, mut size) = (7u8, 1);
        let setting = S::CU_COREDUMP_ENABLE_ON_EXCEPTION;
        let code = machine.get_raw(Scope::Context, setting, (&raw mut value).cast(), &mut size);
        assert_eq!((code, value), (NOT_SUPPORTED, 7));
    }
}

#[test]
fn a_call_without_a_value_returns_the_size() {
    let machine = Machine::new();
    for (setting, bytes) in [
        (S::CU_COREDUMP_TRIGGER_HOST, 1),
        (S::CU_COREDUMP_FILE, 1024),
        (S::CU_COREDUMP_GENERATION_FLAGS, 4),
    ] {
        for scope in [Scope::Process, Scope::Context] {
            let mut size = 99;
            assert_eq!(machine.get_raw(scope, setting, null_mut(), &mut size), SUCCESS);
            assert_eq!(size, bytes, "{setting:?}");
        }
        let mut size = 99;
        let code =
            cu_optional!(machine, cuCoredumpSetAttributeGlobal(setting, null_mut(), &mut size));
        assert_eq!((code, size), (SUCCESS, bytes), "{setting:?}");
    }
}

#[test]
fn bad_arguments_change_nothing() {
    let machine = Machine::trusting();
    let scope = Scope::Process;
    let mut byte = 1u8;
    let value = (&raw mut byte).cast();
    for setting in [S(0), S::CU_COREDUMP_MAX, S(99)] {
        assert_eq!(machine.set_core_dump(scope, setting, vec![1; 4]), INVALID_VALUE);
        assert_eq!(machine.get_raw(scope, setting, value, &mut 1), INVALID_VALUE);
    }
    for (setting, size) in [
        (S::CU_COREDUMP_LIGHTWEIGHT, 0),
        (S::CU_COREDUMP_LIGHTWEIGHT, 2),
        (S::CU_COREDUMP_FILE, 4),
        (S::CU_COREDUMP_GENERATION_FLAGS, 3),
    ] {
        assert_eq!(machine.get_raw(scope, setting, value, &mut size.clone()), INVALID_VALUE);
    }
    assert_eq!(byte, 1, "nothing was written");
    let flags = S::CU_COREDUMP_GENERATION_FLAGS;
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_LIGHTWEIGHT, vec![]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(scope, flags, vec![0; 3]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(scope, flags, vec![0; 8]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_FILE, vec![b'x'; 1024]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_FILE, vec![0; 1025]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(scope, S::CU_COREDUMP_FILE, vec![b'x'; 1023]), SUCCESS);
    assert_eq!(machine.text(scope, S::CU_COREDUMP_FILE).len(), 1023);
    let none = null_mut();
    let code = cu_optional!(machine, cuCoredumpGetAttributeGlobal(flags, value, none));
    assert_eq!(code, INVALID_VALUE, "no size");
    assert_eq!(machine.core_dump_flags(scope), 0);

    for setting in [S::CU_COREDUMP_PIPE, S::CU_COREDUMP_ENABLE_USER_TRIGGER] {
        assert_eq!(machine.set_core_dump(Scope::Context, setting, vec![0]), INVALID_VALUE);
    }
    assert_eq!(cu!(machine, cuCtxSetCurrent(CUcontext::NULL)), SUCCESS);
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    assert_eq!(machine.get_raw(Scope::Context, flags, value, &mut 4), none);
    assert_eq!(machine.set_core_dump(Scope::Context, flags, vec![0; 4]), none);
}

#[test]
fn a_driver_of_12_1_has_no_flags() {
    let mut config = Config::default();
    config.driver_version = 12010;
    config.attested_only = false;
    let machine = Machine::with(config);
    let flags = S::CU_COREDUMP_GENERATION_FLAGS;
    assert_eq!(machine.set_core_dump(Scope::Process, flags, vec![0; 4]), INVALID_VALUE);
    assert_eq!(machine.set_core_dump(Scope::Process, S::CU_COREDUMP_LIGHTWEIGHT, vec![1]), SUCCESS);
}
