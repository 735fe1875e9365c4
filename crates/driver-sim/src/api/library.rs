//! Libraries and their kernels: images that each context loads on first use.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use retrograph_driver_sys::*;

use super::fatbin::NO_BINARY;
use super::images::LoadFailure;
use crate::argument::{Call, In, Out};
use crate::globals::Globals;
use crate::image::Image;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Kernel, Library, Module, State};

/// JIT options and library options of a load.
struct Options {
    jit: (u32, Out<CUjit_option>, Out<*mut c_void>),
    library_options: Out<CUlibraryOption>,
    library_count: u32,
}

impl State {
    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLibraryLoadData(
        &mut self,
        library: Out<CUlibrary>,
        image: In<c_void>,
        jit_options: Out<CUjit_option>,
        jit_values: Out<*mut c_void>,
        jit_count: u32,
        library_options: Out<CUlibraryOption>,
        _library_values: Out<*mut c_void>,
        library_count: u32,
    ) -> Call {
        let options =
            Options { jit: (jit_count, jit_options, jit_values), library_options, library_count };
        self.load_library(library, options, |state| Ok(state.image_text(image)))
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLibraryLoadFromFile(
        &mut self,
        library: Out<CUlibrary>,
        path: In<c_char>,
        jit_options: Out<CUjit_option>,
        jit_values: Out<*mut c_void>,
        jit_count: u32,
        library_options: Out<CUlibraryOption>,
        _library_values: Out<*mut c_void>,
        library_count: u32,
    ) -> Call {
        let options =
            Options { jit: (jit_count, jit_options, jit_values), library_options, library_count };
        self.load_library(library, options, |state| Ok(state.file_text(&path.text()?)))
    }

    /// Checks the options of a load and stores the PTX, which is compiled on first use.
    fn load_library(
        &mut self,
        library: Out<CUlibrary>,
        options: Options,
        read: impl FnOnce(&mut Self) -> Result<Result<String, LoadFailure>, Refusal>,
    ) -> Call {
        library.require()?;
        let (count, names, values) = options.jit;
        let max_registers = self.jit_log(count, names, values)?.max_registers();
        if options.library_options.is_null() && options.library_count > 0 {
            return Err(self.undefined("options of a library are read through null"));
        }
        let text = match read(self)? {
            // The driver says so on first use.
            Err(failure) if failure.refusal == NO_BINARY => Err(failure),
            read => Ok(read.map_err(|failure| self.failed(failure))?.into()),
        };
        let handle: CUlibrary = self.handle();
        let (modules, kernels) = (BTreeMap::new(), BTreeMap::new());
        let library_of =
            Library { text, image: None, modules, kernels, managed: None, max_registers };
        self.libraries.insert(handle, library_of);
        library.write(handle)
    }

    /// The library of a handle.
    fn library(&mut self, library: CUlibrary) -> Result<&mut Library, Refusal> {
        if library.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::LibraryNull));
        }
        if !self.libraries.contains(library) {
            return Err(self.undefined("a library that does not exist, or was unloaded"));
        }
        self.libraries.get_mut(library)
    }

    /// The parsed PTX of a library. Parsed on first use.
    fn image_of(&mut self, library: CUlibrary) -> Result<Arc<Image>, Refusal> {
        let found = self.library(library)?;
        if let Some(image) = &found.image {
            return Ok(Arc::clone(image));
        }
        let image = found.text.clone();
        let image = image.and_then(|text: Arc<str>| self.parse_complete(&text));
        let image = image.map_err(|failure| self.failed(failure))?;
        Ok(Arc::clone(self.library(library)?.image.insert(image)))
    }

    pub(crate) fn cuLibraryUnload(&mut self, library: CUlibrary) -> Call {
        self.library(library)?;
        self.refuse_unsafe()?;
        let modules: Vec<_> = self.library(library)?.modules.values().copied().collect();
        for module in modules {
            if let Ok(module) = self.modules.get(module) {
                self.complete_last(module.device)?;
            }
        }
        if self.library(library)?.managed.is_some() {
            // Kernels of other modules may use the managed variables, in every context.
            for device in 0..self.devices.len() {
                self.complete_last(device)?;
            }
        }
        let found = self.libraries.remove(library)?;
        // Destroyed contexts have already unloaded their modules.
        for module in found.modules.into_values() {
            if self.modules.contains(module) {
                // Fails in a lost context, whose modules no longer exist.
                let _ = self.unload(module);
            }
        }
        if let Some(managed) = &found.managed {
            self.free_managed(managed);
        }
        Ok(())
    }

    pub(crate) fn cuLibraryGetKernel(
        &mut self,
        kernel: Out<CUkernel>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        kernel.require()?;
        let found = self.kernel_named(library, &name.text()?)?;
        kernel.write(found)
    }

    /// The kernel with this name. Its handle is always the same.
    fn kernel_named(&mut self, library: CUlibrary, name: &str) -> Result<CUkernel, Refusal> {
        if let Some(known) = self.library(library)?.kernels.get(name) {
            return Ok(*known);
        }
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, Rule::LibraryKernel);
        self.image_of(library)?.module.entry(name).ok_or(missing)?;
        let text = CString::new(name).map_err(|_| missing)?;
        let handle: CUkernel = self.handle();
        self.kernels.insert(handle, Kernel { library, name: text });
        self.libraries.get_mut(library)?.kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }

    pub(crate) fn cuLibraryGetKernelCount(&mut self, count: Out<u32>, library: CUlibrary) -> Call {
        count.require()?;
        let kernels = self.image_of(library)?.module.entries.len();
        count.write(u32::try_from(kernels).unwrap_or(u32::MAX))
    }

    pub(crate) fn cuLibraryEnumerateKernels(
        &mut self,
        kernels: Out<CUkernel>,
        count: u32,
        library: CUlibrary,
    ) -> Call {
        let image = self.image_of(library)?;
        let names: Vec<_> = image.module.entries.iter().map(|entry| entry.name.clone()).collect();
        for (index, name) in names.iter().take(count as usize).enumerate() {
            let kernel = self.kernel_named(library, name)?;
            kernels.write_at(index, kernel)?;
        }
        Ok(())
    }

    pub(crate) fn cuLibraryGetModule(&mut self, module: Out<CUmodule>, library: CUlibrary) -> Call {
        module.require()?;
        let found = self.module_of_library(library)?;
        module.write(found)
    }

    /// The library's module in the current context. Loaded on first use.
    pub(super) fn module_of_library(&mut self, library: CUlibrary) -> Result<CUmodule, Refusal> {
        self.library(library)?;
        let device = self.current()?;
        let known = self.library(library)?.modules.get(&device).copied();
        if let Some(known) = known.filter(|known| self.modules.contains(*known)) {
            return Ok(known);
        }
        let image = self.image_of(library)?;
        let shared = self.managed_of(library)?;
        let loaded = self.place(device, &image, &shared).map_err(|failure| self.failed(failure))?;
        let handle: CUmodule = self.handle();
        let max_registers = self.library(library)?.max_registers;
        self.modules.insert(handle, Module { library: Some(library), max_registers, ..loaded });
        self.libraries.get_mut(library)?.modules.insert(device, handle);
        Ok(handle)
    }

    /// The managed variables of a library. Allocated on first use.
    fn managed_of(&mut self, library: CUlibrary) -> Result<Globals, Refusal> {
        if let Some(managed) = &self.library(library)?.managed {
            return Ok(managed.clone());
        }
        let image = self.image_of(library)?;
        let allocated = self.allocate_managed(&image.module.variables);
        let managed = allocated.map_err(|failure| self.failed(failure))?;
        Ok(self.library(library)?.managed.insert(managed).clone())
    }

    pub(crate) fn cuLibraryGetGlobal(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        let name = name.text()?;
        let module = self.module_of_library(library)?;
        let (base, size) = self.global_named(module, &name)?;
        if address.is_null() && bytes.is_null() {
            return Err(invalid(Rule::Null));
        }
        address.write_unless_null(base);
        bytes.write_unless_null(size as usize);
        Ok(())
    }

    pub(crate) fn cuLibraryGetManaged(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        if address.is_null() && bytes.is_null() {
            return Err(invalid(Rule::Null));
        }
        self.library(library)?;
        let name = name.text()?;
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, Rule::LibraryManaged);
        let (base, size) = self.managed_of(library)?.get(&name).copied().ok_or(missing)?;
        address.write_unless_null(base);
        bytes.write_unless_null(size as usize);
        Ok(())
    }
}
