//! Modules: PTX is parsed and decoded when it is loaded, as a JIT compiles it then.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use retrograph_driver_sys::*;
use retrograph_ptx::{IsaVersion, ast};

use crate::argument::{Call, In, Out};
use crate::exec::Program;
use crate::globals;
use crate::jit::JitLog;
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Module, State};

/// Images that are not text start with one of these.
const BINARY_MAGIC: [&[u8; 4]; 2] = [b"\x7fELF", &0xba55_ed50u32.to_le_bytes()];

/// Why an image was not loaded: the code, and what the log of the JIT says.
pub(crate) struct LoadFailure {
    pub(crate) refusal: Refusal,
    pub(crate) message: String,
}

impl LoadFailure {
    pub(crate) fn new(refusal: Refusal, message: impl Into<String>) -> Self {
        Self { refusal, message: message.into() }
    }
}

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
        let options = options.input().list(count as usize)?;
        let log = JitLog::from_options(&options, values)?;
        self.load(module, image, &log)
    }

    pub(crate) fn cuModuleLoad(&mut self, module: Out<CUmodule>, path: In<c_char>) -> Call {
        self.current()?;
        module.demand()?;
        let path = path.text()?;
        if path.is_empty() {
            return Err(invalid("module.path"));
        }
        let text = read_file(&path)?;
        self.load_logged(module, Ok(text), &JitLog::default())
    }

    pub(crate) fn cuModuleLoadFatBinary(
        &mut self,
        module: Out<CUmodule>,
        image: In<c_void>,
    ) -> Call {
        self.load(module, image, &JitLog::default())
    }

    fn load(&mut self, module: Out<CUmodule>, image: In<c_void>, log: &JitLog) -> Call {
        self.current()?;
        self.load_logged(module, image_text(image), log)
    }

    fn load_logged(
        &mut self,
        module: Out<CUmodule>,
        text: Result<String, LoadFailure>,
        log: &JitLog,
    ) -> Call {
        let device = self.current()?;
        module.demand()?;
        let parsed = text.and_then(|text| self.parse_image(&text)).and_then(resolved);
        let loaded = parsed.and_then(|parsed| self.place(device, &parsed));
        log.finish(loaded.as_ref().err().map(|failure| failure.message.as_str()))?;
        let loaded = loaded.map_err(|failure| self.failed(failure))?;
        let handle = self.handle();
        self.modules.insert(handle, loaded);
        module.put(handle)
    }

    /// The refusal of a load that failed.
    pub(super) fn failed(&mut self, failure: LoadFailure) -> Refusal {
        match failure.refusal.stops {
            Some(_) => self.unsupported(failure.message),
            None => failure.refusal,
        }
    }

    /// Understands the text of an image, as a compiler does.
    pub(super) fn parse_image(&self, text: &str) -> Result<ast::Module, LoadFailure> {
        let is_ptx = text.contains(".version");
        if !is_ptx {
            return Err(LoadFailure::new(
                refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, "module.kind"),
                "the image is of no known kind",
            ));
        }
        let newest = self.config.newest_isa();
        if let Some(version) = version_line(text).filter(|version| *version > newest) {
            return Err(LoadFailure::new(
                refuse(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "module.isa"),
                format!("PTX ISA {version} is newer than {newest}, which this driver understands"),
            ));
        }
        let parsed = retrograph_ptx::parse(text).map_err(|error| {
            LoadFailure::new(
                refuse(CUresult::CUDA_ERROR_INVALID_PTX, "module.text"),
                error.to_string(),
            )
        })?;
        let (major, minor) = self.config.compute_capability;
        if !parsed.target.runs_on(major, minor) {
            return Err(LoadFailure::new(
                refuse(CUresult::CUDA_ERROR_INVALID_PTX, "module.target"),
                format!("an image for {} does not run on a device {major}.{minor}", parsed.target),
            ));
        }
        Ok(parsed)
    }

    /// Allocates the global variables of a module and decodes its kernels.
    pub(super) fn place(
        &mut self,
        device: usize,
        parsed: &ast::Module,
    ) -> Result<Module, LoadFailure> {
        let memory = Arc::clone(&self.devices[device].memory);
        let globals = globals::allocate(&memory, &parsed.variables)?;
        let address_of = |name: &str| globals.get(name).map(|(address, _)| *address);
        let decoded: Result<BTreeMap<_, _>, _> = parsed
            .entries
            .iter()
            .map(|entry| {
                let program = Program::decode(parsed, &entry.name, &address_of)?;
                Ok((entry.name.clone(), Arc::new(program)))
            })
            .collect();
        let decoded = decoded.map_err(|error: crate::exec::DecodeError| {
            globals::free(&memory, &globals);
            LoadFailure::new(Refusal::UNSUPPORTED, error.to_string())
        });
        Ok(Module {
            device,
            target: parsed.target,
            programs: decoded?,
            functions: BTreeMap::new(),
            globals,
            library: None,
        })
    }

    pub(crate) fn cuModuleUnload(&mut self, module: CUmodule) -> Call {
        self.module_in_use(module)?;
        self.refuse_unsafe()?;
        if self.modules.get(module)?.library.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_PERMITTED, "module.library"));
        }
        self.unload(module)
    }

    /// Unloads a module with its functions and variables.
    pub(super) fn unload(&mut self, module: CUmodule) -> Call {
        let device = self.modules.get(module)?.device;
        // The code is needed until queued launches are complete.
        self.complete_device(device)?;
        let found = self.modules.remove(module)?;
        for function in found.functions.values() {
            self.functions.remove(*function)?;
        }
        globals::free(&self.devices[device].memory, &found.globals);
        Ok(())
    }

    pub(crate) fn cuModuleGetFunctionCount(&mut self, count: Out<u32>, module: CUmodule) -> Call {
        count.demand()?;
        self.module_in_use(module)?;
        let functions = self.modules.get(module)?.programs.len();
        count.put(u32::try_from(functions).unwrap_or(u32::MAX))
    }

    pub(crate) fn cuModuleEnumerateFunctions(
        &mut self,
        functions: Out<CUfunction>,
        count: u32,
        module: CUmodule,
    ) -> Call {
        functions.demand()?;
        self.module_in_use(module)?;
        let names: Vec<_> = self.modules.get(module)?.programs.keys().cloned().collect();
        for (index, name) in names.iter().take(count as usize).enumerate() {
            let function = self.function_named(module, name)?;
            functions.put_at(index, function)?;
        }
        Ok(())
    }

    pub(crate) fn cuModuleGetLoadingMode(&mut self, mode: Out<CUmoduleLoadingMode>) -> Call {
        if mode.is_null() {
            return Err(self.undefined("the mode is written through null"));
        }
        mode.put(CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING)
    }

    pub(crate) fn cuModuleGetGlobal_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        module: CUmodule,
        name: In<c_char>,
    ) -> Call {
        address.offer(0);
        bytes.offer(0);
        self.ready()?;
        let name = name.text()?;
        self.module_in_use(module)?;
        let (base, size) = self.global_named(module, &name)?;
        if address.is_null() && bytes.is_null() {
            return Err(invalid("null"));
        }
        address.offer(base);
        bytes.offer(size as usize);
        Ok(())
    }

    /// Address and size of a variable.
    pub(super) fn global_named(&self, module: CUmodule, name: &str) -> Result<(u64, u64), Refusal> {
        let found = self.modules.get(module)?;
        if name.is_empty() || found.programs.contains_key(name) {
            return Err(invalid("global.kernel"));
        }
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, "global.name");
        found.globals.get(name).copied().ok_or(missing)
    }
}

/// Functions that the system defines.
const SYSTEM: [&str; 4] = ["vprintf", "__assertfail", "malloc", "free"];

/// Refuses an image that needs functions of another one.
pub(super) fn resolved(image: ast::Module) -> Result<ast::Module, LoadFailure> {
    let missing = image.functions.iter().find(|function| {
        let name = function.code.name.as_str();
        let defined = |other: &&ast::Function| other.is_defined && other.code.name == name;
        !function.is_defined
            && !SYSTEM.contains(&name)
            && image.functions.iter().find(defined).is_none()
    });
    match missing.map(|function| function.code.name.clone()) {
        None => Ok(image),
        Some(name) => Err(LoadFailure::new(
            refuse(CUresult::CUDA_ERROR_INVALID_PTX, "module.unresolved"),
            format!("function `{name}` is not defined"),
        )),
    }
}

/// The text of an image in memory.
pub(super) fn image_text(image: In<c_void>) -> Result<String, LoadFailure> {
    let null = |refusal| LoadFailure::new(refusal, "there is no image");
    let magic = image.bytes(1).map_err(null)?;
    let binary = BINARY_MAGIC.iter().any(|known| {
        // The second to fourth bytes exist when the first is that of a binary image.
        known[0] == magic[0] && image.bytes(4).is_ok_and(|bytes| bytes == known.as_slice())
    });
    // A cubin says of how many bits it is in its fifth byte.
    if binary && image.bytes(5).is_ok_and(|bytes| bytes[4] != 0) {
        let message = "images other than PTX cannot be simulated";
        return Err(LoadFailure::new(Refusal::UNSUPPORTED, message));
    }
    image.text().map_err(null)
}

/// The text of an image in a file.
pub(super) fn read_file(path: &str) -> Result<String, Refusal> {
    let missing = refuse(CUresult::CUDA_ERROR_FILE_NOT_FOUND, "module.file");
    if std::path::Path::new(path).is_dir() {
        return Err(refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "module.folder"));
    }
    let bytes = std::fs::read(path).map_err(|_| missing)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The version that the `.version` line of PTX states, if there is one.
fn version_line(text: &str) -> Option<IsaVersion> {
    let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    Some(IsaVersion::new(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_comments() {
        let text = "//\n// made by hand\n  .version 7.8\n.target sm_80\n";
        assert_eq!(version_line(text), Some(IsaVersion::new(7, 8)));
        assert_eq!(version_line("nothing"), None);
    }
}
