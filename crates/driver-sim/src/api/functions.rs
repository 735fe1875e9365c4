//! Functions of modules: attributes, parameters and occupancy.

use std::ffi::c_char;

use retrograph_driver_sys::*;

use super::device::{
    BLOCKS_PER_MULTIPROCESSOR, REGISTERS, RESERVED_SHARED_BYTES, SHARED_BYTES,
    THREADS_PER_MULTIPROCESSOR, shared_opt_in, shared_per_multiprocessor,
};
use crate::argument::{Call, In, Out};
use crate::refusal::{invalid, refuse};
use crate::state::{Function, State};

/// Registers that a thread is given at a time, and least and most of a thread.
const REGISTER_UNIT: u32 = 8;
const MOST_REGISTERS: u32 = 255;

/// Registers of a thread, as a compiler would report them.
fn registers(function: &Function) -> u32 {
    let wanted = function.program.registers().clamp(1, MOST_REGISTERS);
    wanted.next_multiple_of(REGISTER_UNIT).clamp(16, MOST_REGISTERS)
}

/// Threads of a block that the function can be launched with at most.
pub(super) fn most_threads(function: &Function) -> u32 {
    function.program.max_threads().unwrap_or(1024).min(1024)
}

impl State {
    pub(crate) fn cuModuleGetFunction(
        &mut self,
        function: Out<CUfunction>,
        module: CUmodule,
        name: In<c_char>,
    ) -> Call {
        self.current()?;
        let name = name.text()?;
        let found = self.modules.get(module)?;
        if let Some(known) = found.functions.get(&name) {
            return function.put(*known);
        }
        let (device, program) = (found.device, found.programs.get(&name).cloned());
        let program = program
            .ok_or(refuse(CUresult::CUDA_ERROR_NOT_FOUND, "functions.cuModuleGetFunction"))?;
        let handle: CUfunction = self.handle();
        function.put(handle)?;
        let dynamic_shared_limit = SHARED_BYTES.saturating_sub(program.shared_bytes());
        let text = std::ffi::CString::new(name.clone())
            .map_err(|_| invalid("functions.cuModuleGetFunction.2"))?;
        self.functions.insert(
            handle,
            Function { device, module, name: text, program, dynamic_shared_limit, carveout: -1 },
        );
        self.modules.get_mut(module)?.functions.insert(name, handle);
        Ok(())
    }

    pub(crate) fn cuFuncGetAttribute(
        &mut self,
        value: Out<i32>,
        attribute: CUfunction_attribute,
        function: CUfunction,
    ) -> Call {
        use CUfunction_attribute as A;
        self.current()?;
        let found = self.functions.get(function)?;
        let (major, minor) = self.config.compute_capability;
        let number = match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => most_threads(found),
            A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => found.program.shared_bytes(),
            A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES | A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => found.program.local_bytes(),
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => registers(found),
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION => self.modules.get(found.module)?.target.number,
            A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => major * 10 + minor,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => found.dynamic_shared_limit,
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                return value.put(found.carveout);
            }
            _ => return Err(self.unsupported(format!("{attribute:?} is not simulated"))),
        };
        value.put(i32::try_from(number).unwrap_or(i32::MAX))
    }

    pub(crate) fn cuFuncSetAttribute(
        &mut self,
        function: CUfunction,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Call {
        use CUfunction_attribute as A;
        self.current()?;
        let most = shared_opt_in(self.config.compute_capability);
        let found = self.functions.get_mut(function)?;
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let bytes =
                    u32::try_from(value).map_err(|_| invalid("functions.cuFuncSetAttribute"))?;
                if bytes > most.saturating_sub(found.program.shared_bytes()) {
                    return Err(invalid("functions.cuFuncSetAttribute.2"));
                }
                found.dynamic_shared_limit = bytes;
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                if !(-1..=100).contains(&value) {
                    return Err(invalid("functions.cuFuncSetAttribute.3"));
                }
                found.carveout = value;
                Ok(())
            }
            _ => Err(invalid("functions.cuFuncSetAttribute.4")),
        }
    }

    pub(crate) fn cuFuncGetModule(&mut self, module: Out<CUmodule>, function: CUfunction) -> Call {
        self.current()?;
        module.put(self.functions.get(function)?.module)
    }

    pub(crate) fn cuFuncGetName(&mut self, name: Out<*const c_char>, function: CUfunction) -> Call {
        self.current()?;
        name.put(self.functions.get(function)?.name.as_ptr())
    }

    pub(crate) fn cuFuncGetParamInfo(
        &mut self,
        function: CUfunction,
        index: usize,
        offset: Out<usize>,
        size: Out<usize>,
    ) -> Call {
        self.current()?;
        let parameters = self.functions.get(function)?.program.parameters();
        let (start, bytes) =
            parameters.get(index).copied().ok_or(invalid("functions.cuFuncGetParamInfo"))?;
        offset.put(start as usize)?;
        size.offer(bytes as usize);
        Ok(())
    }

    pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &mut self,
        blocks: Out<i32>,
        function: CUfunction,
        block_size: i32,
        dynamic_shared_bytes: usize,
    ) -> Call {
        self.current()?;
        let found = self.functions.get(function)?;
        let threads = u32::try_from(block_size).ok().filter(|threads| *threads > 0);
        let threads =
            threads.ok_or(invalid("functions.cuOccupancyMaxActiveBlocksPerMultiprocessor"))?;
        let shared = u64::from(found.program.shared_bytes()) + dynamic_shared_bytes as u64;
        let available = shared_per_multiprocessor(self.config.compute_capability);
        let by_shared = u64::from(available) / (shared + u64::from(RESERVED_SHARED_BYTES));
        let warps = threads.div_ceil(32);
        let by_threads = THREADS_PER_MULTIPROCESSOR / (warps * 32);
        let by_registers = REGISTERS / (registers(found) * warps * 32);
        let least = by_threads.min(by_registers).min(BLOCKS_PER_MULTIPROCESSOR);
        let fits = threads <= most_threads(found);
        let count = if fits { u64::from(least).min(by_shared) } else { 0 };
        blocks.put(i32::try_from(count).unwrap_or(i32::MAX))
    }
}
