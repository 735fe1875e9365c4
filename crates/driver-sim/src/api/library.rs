//! Libraries and their kernels: images that every context loads by itself when it needs them.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use retrograph_driver_sys::*;

use super::modules::{LoadFailure, image_text, read_file};
use crate::argument::{Call, In, Out};
use crate::jit::JitLog;
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Kernel, Library, State};

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
        library.demand()?;
        let options = jit_options.input().list(jit_count as usize)?;
        library_options.input().list(library_count as usize)?;
        let log = JitLog::from_options(&options, jit_values)?;
        self.load_library(library, image_text(image), &log)
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
        library.demand()?;
        let text = read_file(&path.text()?)?;
        let options = jit_options.input().list(jit_count as usize)?;
        library_options.input().list(library_count as usize)?;
        let log = JitLog::from_options(&options, jit_values)?;
        self.load_library(library, Ok(text), &log)
    }

    fn load_library(
        &mut self,
        library: Out<CUlibrary>,
        text: Result<String, LoadFailure>,
        log: &JitLog,
    ) -> Call {
        let parsed = text.and_then(|text| self.parse_image(&text));
        log.finish(parsed.as_ref().err().map(|failure| failure.message.as_str()))?;
        let image = Arc::new(parsed.map_err(|failure| self.failed(failure))?);
        let handle: CUlibrary = self.handle();
        let library_of = Library { image, modules: BTreeMap::new(), kernels: BTreeMap::new() };
        self.libraries.insert(handle, library_of);
        library.put(handle)
    }

    pub(crate) fn cuLibraryUnload(&mut self, library: CUlibrary) -> Call {
        let found = self.libraries.remove(library)?;
        for kernel in found.kernels.values() {
            self.kernels.remove(*kernel)?;
        }
        for module in found.modules.values() {
            self.unload(*module)?;
        }
        Ok(())
    }

    pub(crate) fn cuLibraryGetKernel(
        &mut self,
        kernel: Out<CUkernel>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        kernel.demand()?;
        let found = self.kernel_named(library, &name.text()?)?;
        kernel.put(found)
    }

    /// The kernel of this name; it has one handle.
    fn kernel_named(&mut self, library: CUlibrary, name: &str) -> Result<CUkernel, Refusal> {
        let found = self.libraries.get(library)?;
        if let Some(known) = found.kernels.get(name) {
            return Ok(*known);
        }
        let missing = refuse(CUresult::CUDA_ERROR_NOT_FOUND, "library.kernel");
        found.image.entry(name).ok_or(missing)?;
        let text = CString::new(name).map_err(|_| missing)?;
        let handle: CUkernel = self.handle();
        self.kernels.insert(handle, Kernel { library, name: text });
        self.libraries.get_mut(library)?.kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }

    pub(crate) fn cuLibraryGetKernelCount(&mut self, count: Out<u32>, library: CUlibrary) -> Call {
        count.demand()?;
        let kernels = self.libraries.get(library)?.image.entries.len();
        count.put(u32::try_from(kernels).unwrap_or(u32::MAX))
    }

    pub(crate) fn cuLibraryEnumerateKernels(
        &mut self,
        kernels: Out<CUkernel>,
        count: u32,
        library: CUlibrary,
    ) -> Call {
        let entries = &self.libraries.get(library)?.image.entries;
        let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        for (index, name) in names.iter().take(count as usize).enumerate() {
            let kernel = self.kernel_named(library, name)?;
            kernels.put_at(index, kernel)?;
        }
        Ok(())
    }

    pub(crate) fn cuLibraryGetModule(&mut self, module: Out<CUmodule>, library: CUlibrary) -> Call {
        module.demand()?;
        let found = self.module_of_library(library)?;
        module.put(found)
    }

    /// The library's module of the current context, loaded when it is first asked for.
    fn module_of_library(&mut self, library: CUlibrary) -> Result<CUmodule, Refusal> {
        let device = self.current()?;
        let found = self.libraries.get(library)?;
        if let Some(known) = found.modules.get(&device) {
            return Ok(*known);
        }
        let image = Arc::clone(&found.image);
        let loaded = self.place(device, &image).map_err(|failure| self.failed(failure))?;
        let handle: CUmodule = self.handle();
        self.modules.insert(handle, loaded);
        self.libraries.get_mut(library)?.modules.insert(device, handle);
        Ok(handle)
    }

    pub(crate) fn cuLibraryGetGlobal(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        self.current()?;
        let module = self.module_of_library(library)?;
        self.cuModuleGetGlobal_v2(address, bytes, module, name)
    }

    pub(crate) fn cuKernelGetFunction(
        &mut self,
        function: Out<CUfunction>,
        kernel: CUkernel,
    ) -> Call {
        self.current()?;
        function.demand()?;
        let found = self.function_of_kernel(kernel)?;
        function.put(found)
    }

    /// The function of a kernel in the current context.
    pub(super) fn function_of_kernel(&mut self, kernel: CUkernel) -> Result<CUfunction, Refusal> {
        let found = self.kernels.get(kernel)?;
        let (library, name) = (found.library, found.name.to_string_lossy().into_owned());
        let module = self.module_of_library(library)?;
        self.function_named(module, &name)
    }

    pub(crate) fn cuKernelGetLibrary(&mut self, library: Out<CUlibrary>, kernel: CUkernel) -> Call {
        library.demand()?;
        let found = self.kernels.get(kernel)?.library;
        library.put(found)
    }

    pub(crate) fn cuKernelGetName(&mut self, name: Out<*const c_char>, kernel: CUkernel) -> Call {
        name.demand()?;
        let found = self.kernels.get(kernel)?.name.as_ptr();
        name.put(found)
    }

    pub(crate) fn cuKernelGetParamInfo(
        &mut self,
        kernel: CUkernel,
        index: usize,
        offset: Out<usize>,
        size: Out<usize>,
    ) -> Call {
        let function = self.function_of_kernel(kernel)?;
        self.cuFuncGetParamInfo(function, index, offset, size)
    }

    pub(crate) fn cuKernelGetAttribute(
        &mut self,
        value: Out<i32>,
        attribute: CUfunction_attribute,
        kernel: CUkernel,
        device: CUdevice,
    ) -> Call {
        value.demand()?;
        let function = self.function_on(kernel, device)?;
        let number = self.attribute_of(function, attribute)?;
        value.put(number)
    }

    pub(crate) fn cuKernelSetAttribute(
        &mut self,
        attribute: CUfunction_attribute,
        value: i32,
        kernel: CUkernel,
        device: CUdevice,
    ) -> Call {
        let function = self.function_on(kernel, device)?;
        self.set_attribute(function, attribute, value)
    }

    /// The function of a kernel on a device, which must be that of the current context.
    fn function_on(&mut self, kernel: CUkernel, device: CUdevice) -> Result<CUfunction, Refusal> {
        self.device_index(device)?;
        let current = self.current()?;
        if self.ordinal(current) != device {
            return Err(self.unsupported("attributes of kernels on another device"));
        }
        self.function_of_kernel(kernel)
    }

    pub(crate) fn cuLibraryGetManaged(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: In<c_char>,
    ) -> Call {
        self.libraries.get(library)?;
        name.text()?;
        if address.is_null() && bytes.is_null() {
            return Err(invalid("null"));
        }
        // The parser knows no managed variables, so that no image has one.
        Err(refuse(CUresult::CUDA_ERROR_NOT_FOUND, "library.managed"))
    }
}
