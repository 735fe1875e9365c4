//! Settings of core dumps. The simulator writes none, so it refuses to enable them.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{CoreDumps, State};

/// The maximum bytes of a text, with its terminating zero.
const TEXT_BYTES: usize = 1024;
/// All flags `CU_COREDUMP_SKIP_…`.
const FLAGS: u32 = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
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
        let scope = Some(self.current()?);
        self.get_core_dump(scope, setting, (value, size))
    }

    pub(crate) fn cuCoredumpGetAttributeGlobal(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        self.get_core_dump(None, setting, (value, size))
    }

    pub(crate) fn cuCoredumpSetAttribute(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        use CUcoredumpSettings as S;
        let scope = Some(self.current()?);
        if matches!(setting, S::CU_COREDUMP_ENABLE_USER_TRIGGER | S::CU_COREDUMP_PIPE) {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_PERMITTED, Rule::CoreDumpOfProcess));
        }
        self.set_core_dump(scope, setting, (value, size))
    }

    pub(crate) fn cuCoredumpSetAttributeGlobal(
        &mut self,
        setting: CUcoredumpSettings,
        value: Out<c_void>,
        size: Out<usize>,
    ) -> Call {
        self.set_core_dump(None, setting, (value, size))
    }

    fn get_core_dump(
        &mut self,
        scope: Scope,
        setting: CUcoredumpSettings,
        (value, size): (Out<c_void>, Out<usize>),
    ) -> Call {
        use CUcoredumpSettings as S;
        let needed = self.core_dump_bytes(setting)?;
        if value.is_null() {
            return size.write(needed);
        }
        if size.get()? < needed {
            return Err(invalid(Rule::CoreDumpSize));
        }
        let enabled = CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;
        if setting == S::CU_COREDUMP_ENABLE_ON_EXCEPTION
            && scope.is_some_and(|index| self.devices[index].flags & enabled != 0)
        {
            return Err(self.unsupported("core dumps, which the flags of the context enable"));
        }
        let settings = self.core_dumps(scope);
        match setting {
            S::CU_COREDUMP_FILE => put_text(value, settings.file, "core"),
            S::CU_COREDUMP_PIPE => put_text(value, settings.pipe, "corepipe"),
            S::CU_COREDUMP_GENERATION_FLAGS => {
                value.cast().write(settings.flags.unwrap_or_default())
            }
            _ => value.cast().write(u8::from(settings.flag(setting).unwrap_or_default())),
        }
    }

    fn set_core_dump(
        &mut self,
        scope: Scope,
        setting: CUcoredumpSettings,
        (value, size): (Out<c_void>, Out<usize>),
    ) -> Call {
        use CUcoredumpSettings as S;
        let needed = self.core_dump_bytes(setting)?;
        if value.is_null() {
            return size.write(needed);
        }
        let is_text = matches!(setting, S::CU_COREDUMP_FILE | S::CU_COREDUMP_PIPE);
        let given = size.get()?;
        if !is_text && given < needed {
            return Err(invalid(Rule::CoreDumpSize));
        }
        let flags_before = self.core_dumps(scope).flags;
        let mut settings = self.own_core_dumps(scope).clone();
        match setting {
            S::CU_COREDUMP_FILE => settings.file = Some(text(value, given)?),
            S::CU_COREDUMP_PIPE => settings.pipe = Some(text(value, given)?),
            S::CU_COREDUMP_GENERATION_FLAGS => {
                let flags: u32 = value.cast().get()?;
                if flags & !FLAGS != 0 {
                    return Err(invalid(Rule::CoreDumpFlags));
                }
                settings.flags = Some(flags);
            }
            _ => {
                let flag = value.cast::<u8>().get()? != 0;
                let enables = matches!(
                    setting,
                    S::CU_COREDUMP_ENABLE_ON_EXCEPTION | S::CU_COREDUMP_ENABLE_USER_TRIGGER
                );
                if enables && flag {
                    return Err(self.unsupported("core dumps"));
                }
                if !enables {
                    settings.flags = flags_before;
                    settings.set_flag(setting, flag);
                }
            }
        }
        match scope {
            Some(index) => self.devices[index].core_dumps = settings,
            None => self.core_dumps = settings,
        }
        Ok(())
    }

    /// The settings changed by the program in this scope.
    fn own_core_dumps(&self, scope: Scope) -> &CoreDumps {
        scope.map_or(&self.core_dumps, |index| &self.devices[index].core_dumps)
    }

    /// The effective settings in this scope.
    fn core_dumps(&self, scope: Scope) -> CoreDumps {
        self.own_core_dumps(scope).clone().or(&self.core_dumps)
    }

    /// The size of a setting in bytes. Fails if the driver lacks the setting.
    fn core_dump_bytes(&self, setting: CUcoredumpSettings) -> Result<usize, Refusal> {
        use CUcoredumpSettings as S;
        match setting {
            S::CU_COREDUMP_ENABLE_ON_EXCEPTION
            | S::CU_COREDUMP_TRIGGER_HOST
            | S::CU_COREDUMP_LIGHTWEIGHT
            | S::CU_COREDUMP_ENABLE_USER_TRIGGER => Ok(size_of::<bool>()),
            S::CU_COREDUMP_FILE | S::CU_COREDUMP_PIPE => Ok(TEXT_BYTES),
            S::CU_COREDUMP_GENERATION_FLAGS if self.config.driver_version >= FLAGS_SINCE => {
                Ok(size_of::<u32>())
            }
            _ => Err(invalid(Rule::CoreDumpSetting)),
        }
    }
}

/// Writes a text; the default includes the host and the process.
fn put_text(output: Out<c_void>, text: Option<Vec<u8>>, default: &str) -> Call {
    let text = text.unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
        format!("{default}.cuda.{host}.{}", std::process::id()).into_bytes()
    });
    let output: Out<u8> = output.cast();
    let mut bytes = text.into_iter().chain([0]).enumerate();
    bytes.try_for_each(|(index, byte)| output.write_at(index, byte))
}

/// Reads a text of at most `size` bytes, up to a zero byte.
fn text(input: Out<c_void>, size: usize) -> Result<Vec<u8>, Refusal> {
    let input = input.cast::<u8>().input();
    let mut text = Vec::new();
    for index in 0..size {
        match input.get_at(index)? {
            0 => break,
            _ if text.len() == TEXT_BYTES - 1 => return Err(invalid(Rule::CoreDumpSize)),
            byte => text.push(byte),
        }
    }
    Ok(text)
}
