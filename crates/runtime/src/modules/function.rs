//! A loaded module and its functions.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use retrograph_driver_sys::{CUfunction, CUfunction_attribute, CUmodule, CUresult};

use super::image::WantedEntry;
use crate::Owner;
use crate::context::Context;
use crate::error::Result;

/// A loaded image, unloaded when nothing uses it any more.
pub(crate) struct Module {
    context: Context,
    raw: CUmodule,
}

impl Module {
    /// Takes over what the driver has loaded in `context`.
    ///
    /// # Safety
    /// The module was loaded in the context and nobody else unloads it.
    pub(super) unsafe fn from_raw(context: &Context, raw: CUmodule) -> Self {
        Self { context: context.clone(), raw }
    }

    /// Looks up an entry point, and what is not known about it.
    pub(super) fn function(self: &Arc<Self>, entry: &WantedEntry<'_>) -> Result<Function> {
        self.context.bind_outside_capture("looking up a function")?;
        let symbol = CString::new(&*entry.name).unwrap_or_default();
        let mut raw = CUfunction::NULL;
        // SAFETY: module and name live, and the place is valid.
        unsafe { call!(self.context, cuModuleGetFunction(&mut raw, self.raw, symbol.as_ptr())) }?;
        let parameters = match &entry.parameters {
            Some(sizes) => Some(sizes.clone()),
            None => parameter_sizes(&self.context, raw)?,
        };
        let traits = FunctionTraits::read(&self.context, raw)?;
        allow_dynamic_shared(&self.context, raw, traits.shared_bytes)?;
        let (module, name) = (self.clone(), entry.name.clone().into_owned());
        let inner = Arc::new(Inner { module, raw, name, parameters, traits });
        Ok(Function { inner })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let raw = self.raw;
        self.context.release(move |driver| {
            // SAFETY: no function of the module is left; work in flight is waited for, since
            // unloading code that runs is not allowed.
            unsafe {
                call!(driver, cuCtxSynchronize())?;
                call!(driver, cuModuleUnload(raw))
            }
        });
    }
}

/// What the compiler made of an entry point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionTraits {
    pub(crate) registers: u32,
    pub(crate) local_bytes: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) max_threads: u32,
}

impl FunctionTraits {
    fn read(context: &Context, raw: CUfunction) -> Result<Self> {
        let read = |attribute| attribute_of(context, raw, attribute);
        Ok(Self {
            registers: read(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: read(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: read(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: read(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }
}

/// An entry point that can be launched without compiling anything. Clones share it, and it keeps
/// its module loaded.
#[derive(Clone)]
pub struct Function {
    inner: Arc<Inner>,
}

struct Inner {
    module: Arc<Module>,
    raw: CUfunction,
    name: String,
    parameters: Option<Vec<usize>>,
    traits: FunctionTraits,
}

impl Function {
    /// The entry point.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.module.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUfunction {
        self.inner.raw
    }

    /// The sizes of the parameters in bytes, or `None` for images of the caller's own with drivers
    /// before 12.4, which do not tell.
    pub fn parameter_sizes(&self) -> Option<&[usize]> {
        self.inner.parameters.as_deref()
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.inner.traits.registers
    }

    /// Local memory of a thread in bytes; more than 0 mostly means spilled registers.
    pub fn local_bytes(&self) -> u32 {
        self.inner.traits.local_bytes
    }

    /// Static shared memory of a block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.inner.traits.shared_bytes
    }

    /// The most threads of a block.
    pub fn max_threads(&self) -> u32 {
        self.inner.traits.max_threads
    }

    /// What keeps the module loaded, for graphs that launch the function.
    pub fn owner(&self) -> Owner {
        self.inner.clone()
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.inner.name)
    }
}

fn attribute_of(
    context: &Context,
    raw: CUfunction,
    attribute: CUfunction_attribute,
) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the function is of this context, and the place is valid.
    unsafe { call!(context, cuFuncGetAttribute(&mut value, attribute, raw)) }?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The sizes of all parameters, where the driver has the function that tells them.
pub(crate) fn parameter_sizes(context: &Context, raw: CUfunction) -> Result<Option<Vec<usize>>> {
    let Some(ask) = context.table().cuFuncGetParamInfo else { return Ok(None) };
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is of this context, and both places are valid.
        match unsafe { ask(raw, sizes.len(), &mut offset, &mut size) } {
            // There is no parameter of this index.
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Some(sizes)),
            code => context.check("cuFuncGetParamInfo", code)?,
        }
        sizes.push(size);
    }
}

/// More dynamic shared memory than every device has must be allowed for each function. It is only
/// a limit, and costs nothing for launches that use less.
fn allow_dynamic_shared(context: &Context, raw: CUfunction, static_bytes: u32) -> Result<()> {
    const ALWAYS_ALLOWED: u32 = 48 << 10;
    let most = context.most_shared_bytes();
    let dynamic = most.saturating_sub(static_bytes);
    if dynamic <= ALWAYS_ALLOWED {
        return Ok(());
    }
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let dynamic = c_int::try_from(dynamic).unwrap_or(c_int::MAX);
    // SAFETY: the function is of this context; the driver refuses values that it cannot take.
    unsafe { call!(context, cuFuncSetAttribute(raw, limit, dynamic)) }
}
