//! The options of `cuModuleLoadDataEx` and other loads: logs, targets and limits.

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::{CUjit_cacheMode, CUjit_option, CUjit_target, CUresult};

use retrograph_ptx::{ImageForm, Reach, SmTarget};

use crate::argument::{Admit, Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;

/// Lower limits of registers count as this. On an H200, limits of 1 and 8 leave a kernel its 10
/// registers. The exact bound is not documented, and was not recorded.
const MIN_REGISTER_LIMIT: u32 = 16;

/// The upper half of a `CUjit_target` that names an exact target, such as 90A.
const EXACT: usize = 1;
/// The upper half of a `CUjit_target` that names a family, such as 100F.
const FAMILY: usize = 2;

/// The log buffers of a load and its other options.
#[derive(Default)]
pub(crate) struct JitLog {
    info: LogBuffer,
    error: LogBuffer,
    wall_time: Option<ValueSlot>,
    max_registers: Option<u32>,
}

/// A text buffer, and the option value with its size.
#[derive(Default)]
struct LogBuffer {
    text: Option<Out<c_char>>,
    size: usize,
    size_slot: Option<ValueSlot>,
}

/// An option value, which results overwrite.
struct ValueSlot {
    values: Out<*mut c_void>,
    index: usize,
}

impl ValueSlot {
    fn put(&self, bits: usize) -> Call {
        self.values.write_at(self.index, std::ptr::without_provenance_mut(bits))
    }
}

impl State {
    /// Reads and checks the options of a load. Options that only affect a compiler are ignored.
    pub(crate) fn jit_log(
        &mut self,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Result<JitLog, Refusal> {
        let options = options.input().list(count as usize)?;
        for (index, option) in options.iter().enumerate() {
            let value = values.values().get_at(index)?.addr();
            self.check_option(*option, value)?;
        }
        JitLog::from_options(&options, values)
    }

    fn check_option(&mut self, option: CUjit_option, value: usize) -> Call {
        use CUjit_option as O;
        match option {
            O::CU_JIT_MAX_REGISTERS if value == 0 => Err(invalid(Rule::JitRegisters)),
            O::CU_JIT_THREADS_PER_BLOCK if value == 0 => {
                Err(self.undefined("CU_JIT_THREADS_PER_BLOCK is 0"))
            }
            O::CU_JIT_TARGET => self.check_target(value),
            O::CU_JIT_CACHE_MODE if value > CUjit_cacheMode::CU_JIT_CACHE_OPTION_CA.0 as usize => {
                Err(invalid(Rule::JitCacheMode))
            }
            known if known.0 <= O::CU_JIT_SPLIT_COMPILE.0 => Ok(()),
            _ => Err(invalid(Rule::JitOption)),
        }
    }

    /// Accepts the device's own target, with or without the `a`, and targets of its family.
    fn check_target(&mut self, value: usize) -> Call {
        let (major, minor) = self.config.compute_capability;
        let number = value & 0xffff;
        let reach = match value >> 16 {
            0 => Some(Reach::Forward),
            EXACT => Some(Reach::ArchSpecific),
            FAMILY => Some(Reach::FamilySpecific),
            _ => None,
        };
        let target = reach.map(|reach| SmTarget { number: number as u32, reach });
        let device = SmTarget::of_device(major, minor);
        let runs = |target: SmTarget| target.require(ImageForm::Cubin, device).is_ok();
        let is_own = |target: SmTarget| {
            target.reach == Reach::FamilySpecific || target.number == device.number
        };
        if target.is_some_and(|target| target.is_known() && is_own(target) && runs(target)) {
            return Ok(());
        }
        use CUjit_target as T;
        let plain = T::CU_TARGET_COMPUTE_30.0..=T::CU_TARGET_COMPUTE_121.0;
        let special = T::CU_TARGET_COMPUTE_90A.0..=T::CU_TARGET_COMPUTE_121F.0;
        let is_known = |target: u32| plain.contains(&target) || special.contains(&target);
        match value {
            0 | 1 => Err(refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, Rule::JitNoTarget)),
            value if u32::try_from(value).is_ok_and(is_known) => {
                Err(self.unsupported("compiling for another device"))
            }
            _ => Err(invalid(Rule::JitTarget)),
        }
    }
}

impl JitLog {
    /// Reads the log buffers; a buffer and its size must both be present.
    fn from_options(options: &[CUjit_option], values: Out<*mut c_void>) -> Result<Self, Refusal> {
        let mut log = Self::default();
        for (index, option) in options.iter().enumerate() {
            let value = values.values().get_at(index)?;
            let slot = || Some(ValueSlot { values, index });
            // SAFETY: the option says that its value points to a buffer whose size another option
            // passes; without a size, nothing is written.
            let buffer = || unsafe { value.cast::<c_char>().admit() };
            match *option {
                CUjit_option::CU_JIT_INFO_LOG_BUFFER => log.info.text = Some(buffer()),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => log.error.text = Some(buffer()),
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (log.info.size, log.info.size_slot) = (value.addr(), slot());
                }
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (log.error.size, log.error.size_slot) = (value.addr(), slot());
                }
                CUjit_option::CU_JIT_WALL_TIME => log.wall_time = slot(),
                CUjit_option::CU_JIT_MAX_REGISTERS => {
                    let limit = u32::try_from(value.addr()).unwrap_or(u32::MAX);
                    log.max_registers = Some(limit.max(MIN_REGISTER_LIMIT));
                }
                _ => {}
            }
        }
        if log.info.is_incomplete() || log.error.is_incomplete() {
            return Err(invalid(Rule::JitLog));
        }
        Ok(log)
    }

    /// The maximum registers per thread, if an option sets it.
    pub(crate) fn max_registers(&self) -> Option<u32> {
        self.max_registers
    }

    /// Writes the logs: success, or the error.
    pub(crate) fn finish(&self, error: Option<&str>) -> Call {
        let info = if error.is_none() { "simulated: parsed and decoded, not compiled" } else { "" };
        self.info.write(info)?;
        self.error.write(error.unwrap_or_default())?;
        self.wall_time.as_ref().map_or(Ok(()), |slot| slot.put(0.0f32.to_bits() as usize))
    }
}

impl LogBuffer {
    /// Whether there is a buffer without a size, or a size without a buffer.
    fn is_incomplete(&self) -> bool {
        match self.text {
            Some(text) => text.is_null() || self.size_slot.is_none(),
            None => self.size_slot.is_some(),
        }
    }

    /// Writes as much of the text as fits before a zero byte, and the number of bytes written.
    fn write(&self, text: &str) -> Call {
        let (Some(buffer), Some(capacity)) = (self.text, self.size.checked_sub(1)) else {
            return Ok(());
        };
        let bytes = &text.as_bytes()[..text.len().min(capacity)];
        for (index, byte) in bytes.iter().chain(&[0]).enumerate() {
            buffer.write_at(index, byte.cast_signed() as c_char)?;
        }
        self.size_slot.as_ref().map_or(Ok(()), |slot| slot.put(bytes.len()))
    }
}
