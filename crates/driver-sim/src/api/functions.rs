//! Functions of modules: lookup, attributes and parameters.

use std::ffi::{CString, c_char};
use std::sync::Arc;

use retrograph_driver_sys::*;
use retrograph_ptx_exec::Program;

use super::LegacyLaunch;
use super::device::{SHARED_BYTES, shared_opt_in};
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Function, State};

/// The minimum and maximum registers per thread.
const MIN_REGISTERS: u32 = 4;
const MAX_REGISTERS: u32 = 255;

/// An estimate of the registers per thread.
pub(super) fn registers(function: &Function) -> u32 {
    let wanted = function.program.registers().clamp(1, MAX_REGISTERS).max(MIN_REGISTERS);
    let limits = [function.program.entry().limits.max_registers, function.max_registers];
    limits.into_iter().flatten().fold(wanted, u32::min)
}

/// The maximum threads per block of a launch of the function.
pub(super) fn max_threads_of(function: &Function) -> u32 {
    let limits = function.program.entry().limits;
    let most = limits.max_threads.map_or(1024, |[x, y, z]| x.saturating_mul(y).saturating_mul(z));
    most.min(1024)
}

impl Function {
    fn new(device: usize, module: CUmodule, name: CString, program: Arc<Program>) -> Self {
        let dynamic_shared_limit = SHARED_BYTES.saturating_sub(program.shared_bytes());
        let cluster = program.entry().limits.cluster.unwrap_or_default().map(u32::cast_signed);
        Self {
            max_registers: None,
            device,
            module,
            name,
            program,
            dynamic_shared_limit,
            carveout: -1,
            cluster,
            large_clusters: false,
            cluster_policy: 0,
            legacy: LegacyLaunch::default(),
        }
    }
}

impl State {
    pub(crate) fn cuModuleGetFunction(
        &mut self,
        function: Out<CUfunction>,
        module: CUmodule,
        name: In<c_char>,
    ) -> Call {
        self.module_in_use(module)?;
        let name = name.text()?;
        if name.is_empty() {
            return Err(invalid(Rule::FunctionUnnamed));
        }
        let found = self.function_named(module, &name);
        // For an unknown name, writes null.
        function.write(found.unwrap_or(CUfunction::NULL))?;
        found.map(|_| ())
    }

    /// Refuses unknown modules and modules of lost contexts.
    pub(super) fn module_in_use(&mut self, module: CUmodule) -> Call {
        let missing = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::ModuleUnknown);
        if !module.is_null() && !self.modules.contains(module) && !self.was_issued(module) {
            return Err(self.undefined("a handle that was never a module"));
        }
        self.modules.get(module).map_err(|_| missing)?;
        self.check_alive()
    }

    /// The function with this name. Its handle is always the same.
    pub(super) fn function_named(
        &mut self,
        module: CUmodule,
        name: &str,
    ) -> Result<CUfunction, Refusal> {
        let found = self.modules.get(module)?;
        if let Some(known) = found.functions.get(name) {
            return Ok(*known);
        }
        let (device, max_registers) = (found.device, found.max_registers);
        let program = found.programs.get(name).cloned();
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, Rule::FunctionName);
        let program = program.ok_or(missing)?;
        let text = CString::new(name).map_err(|_| missing)?;
        let handle: CUfunction = self.handle();
        let function = Function::new(device, module, text, program);
        self.functions.insert(handle, Function { max_registers, ..function });
        self.modules.get_mut(module)?.functions.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Returns the function of a handle. A kernel handle is resolved in the current context; a
    /// function handle needs none.
    pub(super) fn resolved(&mut self, function: CUfunction) -> Result<CUfunction, Refusal> {
        let kernel = CUkernel(function.0);
        if self.kernels.contains(kernel) {
            return self.function_of_kernel(kernel);
        }
        let missing = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::FunctionUnknown);
        self.functions.get(function).map_err(|_| missing)?;
        self.check_alive()?;
        Ok(function)
    }

    /// [`Self::resolved`] for calls that report null as an invalid value.
    fn resolved_or_invalid(&mut self, function: CUfunction) -> Result<CUfunction, Refusal> {
        if function.is_null() {
            return Err(invalid(Rule::FunctionNull));
        }
        self.resolved(function)
    }

    pub(crate) fn cuFuncGetAttribute(
        &mut self,
        value: Out<i32>,
        attribute: CUfunction_attribute,
        function: CUfunction,
    ) -> Call {
        value.require()?;
        let function = self.resolved(function)?;
        let number = self.attribute_of(function, attribute)?;
        value.write(number)
    }

    pub(super) fn attribute_of(
        &mut self,
        function: CUfunction,
        attribute: CUfunction_attribute,
    ) -> Result<i32, Refusal> {
        use CUfunction_attribute as A;
        let found = self.functions.get(function)?;
        let (major, minor) = self.config.compute_capability;
        let number = match attribute {
            // `.reqntid` is a requirement, not a maximum.
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => {
                let bound = found.program.entry().limits.max_threads;
                bound.map_or(1024, |[x, y, z]| x.saturating_mul(y).saturating_mul(z)).min(1024)
            }
            A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => found.program.shared_bytes(),
            A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => self.modules.get(found.module)?.constant_bytes,
            A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => found.program.local_bytes(),
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => registers(found),
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION => self.modules.get(found.module)?.target.number,
            A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => major * 10 + minor,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => found.dynamic_shared_limit,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => {
                u32::from(found.program.entry().limits.explicit_cluster)
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => return Ok(found.carveout),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => return Ok(found.cluster[0]),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => return Ok(found.cluster[1]),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => return Ok(found.cluster[2]),
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                return Ok(i32::from(found.large_clusters));
            }
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                return Ok(found.cluster_policy);
            }
            _ => return Err(invalid(Rule::FunctionAttribute)),
        };
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }

    pub(crate) fn cuFuncSetAttribute(
        &mut self,
        function: CUfunction,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Call {
        let function = self.resolved(function)?;
        self.set_attribute(function, attribute, value)
    }

    pub(super) fn set_attribute(
        &mut self,
        function: CUfunction,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Call {
        use CUfunction_attribute as A;
        let most = shared_opt_in(&self.config);
        let found = self.functions.get_mut(function)?;
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let most = most.saturating_sub(found.program.shared_bytes());
                let bytes = u32::try_from(value).ok().filter(|bytes| *bytes <= most);
                found.dynamic_shared_limit = bytes.ok_or(invalid(Rule::FunctionShared))?;
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                if !(-1..=100).contains(&value) {
                    return Err(invalid(Rule::FunctionCarveout));
                }
                found.carveout = value;
            }
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
                if value < 0 || found.program.entry().limits.cluster.is_some() {
                    return Err(invalid(Rule::FunctionCluster));
                }
                let first = A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH.0;
                found.cluster[(attribute.0 - first) as usize] = value;
            }
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                found.large_clusters = value != 0;
            }
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                if !(0..=2).contains(&value) {
                    return Err(invalid(Rule::FunctionPolicy));
                }
                found.cluster_policy = value;
            }
            _ if attribute.0 > i32::MAX as u32 => {
                return Err(self.undefined("a negative attribute of a function"));
            }
            _ => return Err(invalid(Rule::FunctionAttribute)),
        }
        Ok(())
    }

    pub(crate) fn cuFuncSetCacheConfig(
        &mut self,
        function: CUfunction,
        config: CUfunc_cache,
    ) -> Call {
        self.resolved(function)?;
        if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
            return Err(invalid(Rule::FunctionCache));
        }
        Ok(())
    }

    pub(crate) fn cuFuncIsLoaded(
        &mut self,
        state: Out<CUfunctionLoadingState>,
        function: CUfunction,
    ) -> Call {
        state.require()?;
        self.resolved(function)?;
        // Modules from PTX are loaded eagerly.
        state.write(CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED)
    }

    pub(crate) fn cuFuncLoad(&mut self, function: CUfunction) -> Call {
        self.resolved(function).map(|_| ())
    }

    pub(crate) fn cuFuncGetModule(&mut self, module: Out<CUmodule>, function: CUfunction) -> Call {
        module.require()?;
        let function = self.resolved_or_invalid(function)?;
        module.write(self.functions.get(function)?.module)
    }

    pub(crate) fn cuFuncGetName(&mut self, name: Out<*const c_char>, function: CUfunction) -> Call {
        name.require()?;
        let function = self.resolved_or_invalid(function)?;
        name.write(self.functions.get(function)?.name.as_ptr())
    }

    pub(crate) fn cuFuncGetParamInfo(
        &mut self,
        function: CUfunction,
        index: usize,
        offset: Out<usize>,
        size: Out<usize>,
    ) -> Call {
        offset.require()?;
        let function = self.resolved_or_invalid(function)?;
        let parameters = self.functions.get(function)?.program.parameters();
        let past = invalid(Rule::FunctionParameter);
        let (start, bytes) = parameters.get(index).copied().ok_or(past)?;
        offset.write(start as usize)?;
        size.write_unless_null(bytes as usize);
        Ok(())
    }
}
