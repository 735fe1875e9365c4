//! Kernels of libraries: `CUkernel` handles.

use std::ffi::c_char;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Kernel, State};

impl State {
    pub(crate) fn cuKernelGetFunction(
        &mut self,
        function: Out<CUfunction>,
        kernel: CUkernel,
    ) -> Call {
        function.require()?;
        let found = self.function_of_kernel(kernel)?;
        function.write(found)
    }

    /// The kernel of a handle.
    fn known_kernel(&self, kernel: CUkernel) -> Result<&Kernel, Refusal> {
        let missing = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::LibraryNoKernel);
        self.kernels.get(kernel).map_err(|_| missing)
    }

    /// The function of a kernel in the current context.
    pub(super) fn function_of_kernel(&mut self, kernel: CUkernel) -> Result<CUfunction, Refusal> {
        let found = self.known_kernel(kernel)?;
        let (library, name) = (found.library, found.name.to_string_lossy().into_owned());
        let module = self.module_of_library(library)?;
        self.function_named(module, &name)
    }

    pub(crate) fn cuKernelGetLibrary(&mut self, library: Out<CUlibrary>, kernel: CUkernel) -> Call {
        library.require()?;
        let found = self.known_kernel(kernel)?.library;
        library.write(found)
    }

    pub(crate) fn cuKernelGetName(&mut self, name: Out<*const c_char>, kernel: CUkernel) -> Call {
        name.write(self.named_kernel(kernel)?.name.as_ptr())
    }

    /// The kernel of a handle, for calls that report null as an invalid value.
    fn named_kernel(&self, kernel: CUkernel) -> Result<&Kernel, Refusal> {
        self.kernels.get(kernel).map_err(|_| invalid(Rule::KernelName))
    }

    pub(crate) fn cuKernelGetParamInfo(
        &mut self,
        kernel: CUkernel,
        index: usize,
        offset: Out<usize>,
        size: Out<usize>,
    ) -> Call {
        self.named_kernel(kernel)?;
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
        self.known_kernel(kernel)?;
        value.require()?;
        let function = self.function_on(kernel, device)?;
        let number = self.attribute_of(function, attribute)?;
        value.write(number)
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

    pub(crate) fn cuKernelSetCacheConfig(
        &mut self,
        kernel: CUkernel,
        config: CUfunc_cache,
        device: CUdevice,
    ) -> Call {
        if self.current().is_err() {
            self.device_index(device)?;
            return self.kernels.get(kernel).map(|_| ());
        }
        let function = self.function_on(kernel, device)?;
        self.cuFuncSetCacheConfig(function, config)
    }

    /// The function of a kernel on `device`, which must be the device of the current context.
    fn function_on(&mut self, kernel: CUkernel, device: CUdevice) -> Result<CUfunction, Refusal> {
        self.device_index(device)?;
        let current = self.current()?;
        if self.ordinal(current) != device {
            return Err(self.unsupported("attributes of kernels on another device"));
        }
        self.function_of_kernel(kernel)
    }
}
