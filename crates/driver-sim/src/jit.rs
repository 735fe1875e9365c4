//! The logs that a caller of `cuModuleLoadDataEx` may ask for.

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::{CUjit_option, CUresult};

use crate::argument::{Admit, Call, Out};
use crate::refusal::{Refusal, invalid, refuse};

/// Where the log of a load goes.
#[derive(Default)]
pub(crate) struct JitLog {
    info: LogBuffer,
    error: LogBuffer,
    wall_time: Option<ValueSlot>,
}

/// A buffer for text, and the place of its size among the option values.
#[derive(Default)]
struct LogBuffer {
    text: Option<Out<c_char>>,
    size: usize,
    size_slot: Option<ValueSlot>,
}

/// One option value: results are written over it.
struct ValueSlot {
    values: Out<*mut c_void>,
    index: usize,
}

impl ValueSlot {
    fn put(&self, bits: usize) -> Call {
        self.values.put_at(self.index, std::ptr::without_provenance_mut(bits))
    }
}

impl JitLog {
    /// Reads the options of a load. Options that only steer a compiler change nothing here.
    pub(crate) fn from_options(
        options: &[CUjit_option],
        values: Out<*mut c_void>,
    ) -> Result<Self, Refusal> {
        let mut log = Self::default();
        for (index, option) in options.iter().enumerate() {
            let value = values.values().get_at(index)?;
            let slot = || Some(ValueSlot { values, index });
            // SAFETY: the option says that its value points to a buffer of the size that another
            // option gives; without one, nothing is written.
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
                _ => check_value(*option, value.addr())?,
            }
        }
        log.info.check()?;
        log.error.check()?;
        Ok(log)
    }

    /// Writes the logs: that it went well, or the error.
    pub(crate) fn finish(&self, error: Option<&str>) -> Call {
        let info = if error.is_none() { "simulated: parsed and decoded, not compiled" } else { "" };
        self.info.write(info)?;
        self.error.write(error.unwrap_or_default())?;
        self.wall_time.as_ref().map_or(Ok(()), |slot| slot.put(0.0f32.to_bits() as usize))
    }
}

/// The first number that is no option in any driver that is simulated.
const OPTIONS: u32 = 40;

/// Refuses values that steer a compiler nowhere.
fn check_value(option: CUjit_option, value: usize) -> Call {
    match (option, value) {
        (CUjit_option::CU_JIT_MAX_REGISTERS, 0) => Err(invalid("jit.registers")),
        // A block of no threads ends the process.
        (CUjit_option::CU_JIT_THREADS_PER_BLOCK, 0) => Err(Refusal::UNDEFINED),
        (CUjit_option::CU_JIT_TARGET, 0 | 1) => {
            Err(refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, "jit.target"))
        }
        (CUjit_option::CU_JIT_TARGET, 2..30 | 1000..) => Err(invalid("jit.no_target")),
        (CUjit_option::CU_JIT_CACHE_MODE, 3..) => Err(invalid("jit.cache")),
        _ if option.0 >= OPTIONS => Err(invalid("jit.option")),
        _ => Ok(()),
    }
}

impl LogBuffer {
    /// Refuses a buffer without a size, and a size without a buffer.
    fn check(&self) -> Call {
        let has_buffer = self.text.is_some_and(|text| !text.is_null());
        if has_buffer != self.size_slot.is_some() {
            return Err(invalid("jit.buffer"));
        }
        Ok(())
    }

    /// Writes as much of the text as fits before a zero byte, and how many bytes were filled.
    fn write(&self, text: &str) -> Call {
        let (Some(buffer), Some(room)) = (self.text, self.size.checked_sub(1)) else {
            return Ok(());
        };
        let bytes = &text.as_bytes()[..text.len().min(room)];
        for (index, byte) in bytes.iter().chain(&[0]).enumerate() {
            buffer.put_at(index, byte.cast_signed() as c_char)?;
        }
        self.size_slot.as_ref().map_or(Ok(()), |slot| slot.put(bytes.len()))
    }
}
