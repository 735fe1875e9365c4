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

    fn load(&mut self, module: Out<CUmodule>, image: In<c_void>, log: &JitLog) -> Call {
        let device = self.current()?;
        let loaded = self.read_image(device, image);
        log.finish(loaded.as_ref().err().map(|failure| failure.message.as_str()))?;
        let loaded = loaded.map_err(|failure| {
            if failure.refusal.stops.is_some() {
                return self.unsupported(failure.message);
            }
            failure.refusal
        })?;
        let handle = self.handle();
        module.put(handle)?;
        self.modules.insert(handle, loaded);
        Ok(())
    }

    fn read_image(&mut self, device: usize, image: In<c_void>) -> Result<Module, LoadFailure> {
        let null = |refusal| LoadFailure::new(refusal, "there is no image");
        let magic = image.bytes(1).map_err(null)?;
        let binary = BINARY_MAGIC.iter().any(|known| {
            // The second to fourth bytes exist when the first is that of a binary image.
            known[0] == magic[0] && image.bytes(4).is_ok_and(|bytes| bytes == known.as_slice())
        });
        if binary {
            let message = "images other than PTX cannot be simulated";
            return Err(LoadFailure::new(Refusal::UNSUPPORTED, message));
        }
        let text = image.text().map_err(null)?;
        self.load_text(device, &text)
    }

    fn load_text(&mut self, device: usize, text: &str) -> Result<Module, LoadFailure> {
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
                refuse(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, "module.target"),
                format!("an image for {} does not run on a device {major}.{minor}", parsed.target),
            ));
        }
        self.place(device, &parsed)
    }

    /// Allocates the global variables of a module and decodes its kernels.
    fn place(&mut self, device: usize, parsed: &ast::Module) -> Result<Module, LoadFailure> {
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
        })
    }

    pub(crate) fn cuModuleUnload(&mut self, module: CUmodule) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        self.modules.get(module)?;
        // The code is needed until queued launches are complete.
        self.complete_device(device)?;
        let found = self.modules.remove(module)?;
        for function in found.functions.values() {
            self.functions.remove(*function)?;
        }
        globals::free(&self.devices[device].memory, &found.globals);
        Ok(())
    }

    pub(crate) fn cuModuleGetGlobal_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        module: CUmodule,
        name: In<c_char>,
    ) -> Call {
        self.current()?;
        let found = self.modules.get(module)?.globals.get(&name.text()?).copied();
        let (base, size) =
            found.ok_or(refuse(CUresult::CUDA_ERROR_NOT_FOUND, "modules.cuModuleGetGlobal_v2"))?;
        if address.is_null() && bytes.is_null() {
            return Err(invalid("modules.cuModuleGetGlobal_v2.2"));
        }
        address.offer(base);
        bytes.offer(size as usize);
        Ok(())
    }
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
