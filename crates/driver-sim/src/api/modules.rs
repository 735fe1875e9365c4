//! Modules. Loading parses and decodes the PTX.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use retrograph_driver_sys::*;

use super::images::LoadFailure;
use crate::argument::{Call, In, Out};
use crate::globals::{self, Globals};
use crate::image::Image;
use crate::jit::JitLog;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Module, State};

impl State {
    pub(crate) fn cuModuleLoadData(&mut self, module: Out<CUmodule>, image: In<c_void>) -> Call {
        self.load(module, image, &JitLog::default())
    }

    pub(crate) fn cuModuleLoadDataEx(
        &mut self,
        module: Out<CUmodule>,
        image: In<c_void>,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Call {
        let log = self.jit_log(count, options, values)?;
        self.load(module, image, &log)
    }

    pub(crate) fn cuModuleLoad(&mut self, module: Out<CUmodule>, path: In<c_char>) -> Call {
        self.current()?;
        module.require()?;
        let text = self.file_text(&path.text()?).map_err(|failure| self.failed(failure))?;
        self.load_logged(module, Ok(text), &JitLog::default())
    }

    pub(crate) fn cuModuleLoadFatBinary(
        &mut self,
        module: Out<CUmodule>,
        image: In<c_void>,
    ) -> Call {
        // The driver accepts the same images as for `cuModuleLoadData`.
        self.load(module, image, &JitLog::default())
    }

    fn load(&mut self, module: Out<CUmodule>, image: In<c_void>, log: &JitLog) -> Call {
        let text = self.image_text(image);
        self.load_logged(module, text, log)
    }

    fn load_logged(
        &mut self,
        module: Out<CUmodule>,
        text: Result<String, LoadFailure>,
        log: &JitLog,
    ) -> Call {
        let device = self.current()?;
        module.require()?;
        let parsed = text.and_then(|text| self.parse_complete(&text));
        let loaded = parsed.and_then(|parsed| self.place(device, &parsed, &Globals::new()));
        log.finish(loaded.as_ref().err().map(|failure| failure.message.as_str()))?;
        let loaded = loaded.map_err(|failure| self.failed(failure))?;
        let handle = self.handle();
        let max_registers = log.max_registers();
        self.modules.insert(handle, Module { max_registers, ..loaded });
        module.write(handle)
    }

    /// Allocates the global variables of a module and decodes its kernels. The library of the
    /// module has already allocated the shared ones.
    pub(super) fn place(
        &mut self,
        device: usize,
        image: &Image,
        shared: &Globals,
    ) -> Result<Module, LoadFailure> {
        let parsed = &image.module;
        let constant_bytes = globals::constant_bytes(&parsed.variables)?;
        let globals = self.allocate_globals(device, &parsed.variables, shared)?;
        let address_of = |name: &str| globals.get(name).map(|(address, _)| *address);
        let programs = image.programs(&address_of).map_err(|error| {
            self.free_globals(device, &globals);
            LoadFailure::new(Refusal::UNSUPPORTED, error.to_string())
        })?;
        Ok(Module {
            device,
            target: parsed.target,
            programs,
            functions: BTreeMap::new(),
            globals,
            library: None,
            constant_bytes,
            max_registers: None,
        })
    }

    pub(crate) fn cuModuleUnload(&mut self, module: CUmodule) -> Call {
        self.module_in_use(module)?;
        self.refuse_unsafe()?;
        if self.modules.get(module)?.library.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_PERMITTED, Rule::ModuleLibrary));
        }
        self.unload(module)
    }

    /// Unloads a module with its functions and variables.
    pub(super) fn unload(&mut self, module: CUmodule) -> Call {
        let device = self.modules.get(module)?.device;
        // Queued launches need the code.
        self.complete_device(device)?;
        let found = self.modules.remove(module)?;
        for function in found.functions.values() {
            self.functions.remove(*function)?;
        }
        self.free_globals(device, &found.globals);
        Ok(())
    }

    pub(crate) fn cuModuleGetFunctionCount(&mut self, count: Out<u32>, module: CUmodule) -> Call {
        count.require()?;
        self.module_in_use(module)?;
        let functions = self.modules.get(module)?.programs.len();
        count.write(u32::try_from(functions).unwrap_or(u32::MAX))
    }

    pub(crate) fn cuModuleEnumerateFunctions(
        &mut self,
        functions: Out<CUfunction>,
        count: u32,
        module: CUmodule,
    ) -> Call {
        functions.require()?;
        self.module_in_use(module)?;
        let names: Vec<_> = self.modules.get(module)?.programs.keys().cloned().collect();
        for (index, name) in names.iter().take(count as usize).enumerate() {
            let function = self.function_named(module, name)?;
            functions.write_at(index, function)?;
        }
        Ok(())
    }

    pub(crate) fn cuModuleGetLoadingMode(&mut self, mode: Out<CUmoduleLoadingMode>) -> Call {
        if mode.is_null() {
            return Err(self.undefined("the mode is written through null"));
        }
        mode.write(CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING)
    }

    pub(crate) fn cuModuleGetGlobal_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        module: CUmodule,
        name: In<c_char>,
    ) -> Call {
        address.write_unless_null(0);
        bytes.write_unless_null(0);
        self.check_initialized()?;
        let name = name.text()?;
        self.module_in_use(module)?;
        let (base, size) = self.global_named(module, &name)?;
        if address.is_null() && bytes.is_null() {
            return Err(invalid(Rule::Null));
        }
        address.write_unless_null(base);
        bytes.write_unless_null(size as usize);
        Ok(())
    }

    /// Address and size of a variable.
    pub(super) fn global_named(&self, module: CUmodule, name: &str) -> Result<(u64, u64), Refusal> {
        let found = self.modules.get(module)?;
        if name.is_empty() || found.programs.contains_key(name) {
            return Err(invalid(Rule::GlobalKernel));
        }
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, Rule::GlobalName);
        found.globals.get(name).copied().ok_or(missing)
    }
}
