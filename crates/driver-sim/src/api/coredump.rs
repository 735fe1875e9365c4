//! Settings of core dumps. The simulator writes none, so it refuses to enable them.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{CoreDumps, State};

/// The maximum bytes of a text, with its terminating zero.
const TEXT_BYTES: usize = 1024;
/// The first driver with `CU_COREDUMP_GENERATION_FLAGS`.
const FLAGS_SINCE: i32 = 12050;

/// The scope of settings: a context, by its index among the devices, or the process.
type Scope = Option<usize>;

impl State {
    pub(crate) fn cuCoredumpGetAttribute(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        let needed = self.core_dump_bytes(setting, size)?;
        let scope = self.context_with_setting(setting)?;
        self.get_core_dump(scope, setting, value, size, needed)
    }

    pub(crate) fn cuCoredumpGetAttributeGlobal(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        let needed = self.core_dump_bytes(setting, size)?;
        self.get_core_dump(None, setting, value, size, needed)
    }

    pub(crate) fn cuCoredumpSetAttribute(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        let needed = self.core_dump_bytes(setting, size)?;
        let scope = self.context_with_setting(setting)?;
        self.set_core_dump(scope, setting, value, size, needed)
    }

    pub(crate) fn cuCoredumpSetAttributeGlobal(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        let needed = self.core_dump_bytes(setting, size)?;
        self.set_core_dump(None, setting, value, size, needed)
    }

    /// The current context. Fails if only the process has the setting.
    fn context_with_setting(&mut self, setting: CUcoredumpSettings) -> Result<Scope, Refusal> {
        use CUcoredumpSettings as S;
        let index = self.current()?;
        match setting {
            S::CU_COREDUMP_ENABLE_USER_TRIGGER | S::CU_COREDUMP_PIPE => {
                Err(invalid(Rule::CoreDumpOfProcess))
            }
            _ => Ok(Some(index)),
        }
    }

    fn get_core_dump(
        &mut self,
        scope: Scope,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
        needed: usize,
    ) -> Call {
        use CUcoredumpSettings as S;
        if value.is_null() {
            return size.write(needed);
        }
        let given = size.get()?;
        let settings = self.core_dumps(scope).clone();
        match setting {
            S::CU_COREDUMP_FILE => {
                // A context has no default.
                let none = scope.map(|_| Vec::new());
                put_text(value, given, settings.file.or(none), "core")
            }
            S::CU_COREDUMP_PIPE => put_text(value, given, settings.pipe, "corepipe"),
            _ if given != needed => Err(invalid(Rule::CoreDumpSize)),
            S::CU_COREDUMP_GENERATION_FLAGS => value.cast().write(settings.flags),
            S::CU_COREDUMP_ENABLE_ON_EXCEPTION if self.flags_enable_core_dumps(scope) => {
                Err(self.unsupported("core dumps, which the flags of the context enable"))
            }
            _ => value.cast().write(u8::from(settings.flag(setting))),
        }
    }

    fn flags_enable_core_dumps(&self, scope: Scope) -> bool {
        let enabled = CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;
        scope.is_some_and(|index| self.devices[index].flags & enabled != 0)
    }

    fn set_core_dump(
        &mut self,
        scope: Scope,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
        needed: usize,
    ) -> Call {
        use CUcoredumpSettings as S;
        if value.is_null() {
            return size.write(needed);
        }
        let given = size.get()?;
        match setting {
            S::CU_COREDUMP_FILE => {
                self.core_dumps(scope).file = Some(text(value, given)?);
            }
            S::CU_COREDUMP_PIPE => {
                self.core_dumps(scope).pipe = Some(text(value, given)?);
            }
            _ if given != needed => return Err(invalid(Rule::CoreDumpSize)),
            S::CU_COREDUMP_GENERATION_FLAGS => {
                self.core_dumps(scope).flags = value.cast().get()?;
            }
            S::CU_COREDUMP_ENABLE_ON_EXCEPTION | S::CU_COREDUMP_ENABLE_USER_TRIGGER => {
                if value.cast::<u8>().get()? != 0 {
                    return Err(self.unsupported("core dumps"));
                }
            }
            _ => {
                let flag = value.cast::<u8>().get()? != 0;
                self.core_dumps(scope).set_flag(setting, flag);
            }
        }
        Ok(())
    }

    /// The settings of a scope.
    fn core_dumps(&mut self, scope: Scope) -> &mut CoreDumps {
        match scope {
            Some(index) => &mut self.devices[index].core_dumps,
            None => &mut self.core_dumps,
        }
    }

    /// The size of a setting in bytes. Fails if the driver lacks the setting, and without `size`.
    fn core_dump_bytes(
        &self,
        setting: CUcoredumpSettings,
        size: Out<usize>,
    ) -> Result<usize, Refusal> {
        use CUcoredumpSettings as S;
        let bytes = match setting {
            S::CU_COREDUMP_ENABLE_ON_EXCEPTION
            | S::CU_COREDUMP_TRIGGER_HOST
            | S::CU_COREDUMP_LIGHTWEIGHT
            | S::CU_COREDUMP_ENABLE_USER_TRIGGER => size_of::<bool>(),
            S::CU_COREDUMP_FILE | S::CU_COREDUMP_PIPE => TEXT_BYTES,
            S::CU_COREDUMP_GENERATION_FLAGS if self.config.driver_version >= FLAGS_SINCE => {
                size_of::<u32>()
            }
            _ => return Err(invalid(Rule::CoreDumpSetting)),
        };
        size.require()?;
        Ok(bytes)
    }
}

/// Writes a text into `size` bytes, with a final zero if there is room. The default includes the
/// host and the process.
fn put_text(output: Out<c_void>, size: usize, text: Option<Vec<u8>>, default: &str) -> Call {
    let text = text.unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
        format!("{default}.cuda.{host}.{}", std::process::id()).into_bytes()
    });
    if text.len() > size {
        return Err(invalid(Rule::CoreDumpSize));
    }
    let output: Out<u8> = output.cast();
    let mut bytes = text.into_iter().chain([0]).take(size).enumerate();
    bytes.try_for_each(|(index, byte)| output.write_at(index, byte))
}

/// Reads a text of at most `size` bytes, up to a zero byte.
fn text(input: Out<c_void>, size: usize) -> Result<Vec<u8>, Refusal> {
    if size > TEXT_BYTES {
        return Err(invalid(Rule::CoreDumpSize));
    }
    let bytes = input.cast::<u8>().input();
    let mut text = Vec::new();
    for index in 0..size {
        match bytes.get_at(index)? {
            0 => break,
            _ if text.len() == TEXT_BYTES - 1 => return Err(invalid(Rule::CoreDumpSize)),
            byte => text.push(byte),
        }
    }
    Ok(text)
}
