//! Loaded modules and their functions.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use retrograph_driver_sys::{CUfunction, CUfunction_attribute, CUmodule, CUresult};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::owner::Owner;

/// A loaded image. Clones and functions share it; it is unloaded with the last of them.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Loaded>,
}

struct Loaded {
    context: Context,
    raw: CUmodule,
}

impl Module {
    /// Takes ownership of a module that the driver has loaded in `context`.
    ///
    /// # Safety
    /// The module was loaded in this context, and nobody else unloads it.
    pub unsafe fn from_raw(context: &Context, raw: CUmodule) -> Self {
        Self { inner: Arc::new(Loaded { context: context.clone(), raw }) }
    }

    /// Looks up an entry point and its parameter sizes, if the driver reports them.
    ///
    /// # Errors
    /// [`Error::NoEntryPoint`], [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn function(&self, name: &str) -> Result<Function> {
        self.look_up(name, None)
    }

    /// Looks up an entry point whose parameters have `sizes` bytes each, without asking the driver.
    /// Launches are checked against these sizes.
    ///
    /// # Errors
    /// As [`Module::function`].
    pub fn function_with(&self, name: &str, sizes: &[usize]) -> Result<Function> {
        self.look_up(name, Some(sizes))
    }

    fn look_up(&self, name: &str, sizes: Option<&[usize]>) -> Result<Function> {
        let Loaded { context, raw: module } = &*self.inner;
        context.bind_outside_capture("looking up a function")?;
        let missing = |cause| Error::NoEntryPoint { name: name.to_owned(), cause };
        // No entry point has an empty name, or one with a zero byte.
        let symbol = CString::new(name).ok().filter(|symbol| !symbol.is_empty());
        let symbol = symbol.ok_or_else(|| missing(None))?;
        let (mut raw, find) = (CUfunction::NULL, context.table().cuModuleGetFunction);
        // SAFETY: module and name live, and the out pointer is valid.
        let code = unsafe { find(&mut raw, *module, symbol.as_ptr()) };
        context.check("cuModuleGetFunction", code).map_err(|error| match error {
            Error::Call(cause) if code == CUresult::CUDA_ERROR_NOT_FOUND => {
                missing(Some(Box::new(cause)))
            }
            error => error,
        })?;
        let parameters = match sizes {
            Some(sizes) => Some(sizes.to_vec()),
            None => parameter_sizes(context, raw)?,
        };
        let traits = FunctionTraits::read(context, raw)?;
        allow_dynamic_shared(context, raw, traits.shared_bytes)?;
        let (module, name) = (self.inner.clone(), name.to_owned());
        let inner = Arc::new(Inner { module, raw, name, parameters, traits });
        Ok(Function { inner })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let raw = self.raw;
        self.context.release(move |driver| {
            // SAFETY: no function of the module is left, and no launch is in flight after the wait.
            unsafe {
                call!(driver, cuCtxSynchronize())?;
                call!(driver, cuModuleUnload(raw))
            }
        });
    }
}

/// Resources of a compiled entry point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FunctionTraits {
    registers: u32,
    local_bytes: u32,
    shared_bytes: u32,
    max_threads: u32,
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

/// An entry point of a loaded module. Clones share it, and it keeps its module loaded.
#[derive(Clone)]
pub struct Function {
    inner: Arc<Inner>,
}

struct Inner {
    module: Arc<Loaded>,
    raw: CUfunction,
    name: String,
    parameters: Option<Vec<usize>>,
    traits: FunctionTraits,
}

impl Function {
    /// The name of the entry point.
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

    /// The sizes of the parameters in bytes, or `None` if neither the caller nor the driver (before
    /// 12.4) provided them.
    pub fn parameter_sizes(&self) -> Option<&[usize]> {
        self.inner.parameters.as_deref()
    }

    /// Registers per thread.
    pub fn registers(&self) -> u32 {
        self.inner.traits.registers
    }

    /// Local memory per thread in bytes; more than 0 usually means register spills.
    pub fn local_bytes(&self) -> u32 {
        self.inner.traits.local_bytes
    }

    /// Static shared memory per block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.inner.traits.shared_bytes
    }

    /// Maximum threads per block.
    pub fn max_threads(&self) -> u32 {
        self.inner.traits.max_threads
    }

    /// Allows clusters of more than 8 blocks, for later launches and nodes of the function. Such
    /// sizes may not work on other devices. Devices without clusters (before compute capability
    /// 9.0) refuse it.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn allow_non_portable_clusters(&self) -> Result<()> {
        let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        self.set(allowed, 1)
    }

    /// Sets the preferred part of the L1 cache that serves as shared memory for later launches of
    /// the function, in percent of the most shared memory of a multiprocessor; `None` leaves it to
    /// the driver. This is a hint, which
    /// [`LaunchAttributes::shared_carveout`](crate::LaunchAttributes::shared_carveout) overrides.
    ///
    /// # Errors
    /// If the driver fails, for example because of more than 100 percent.
    pub fn set_shared_carveout(&self, percent: Option<u32>) -> Result<()> {
        let preferred = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // -1 is the driver's default.
        let percent = percent.map_or(-1, |percent| c_int::try_from(percent).unwrap_or(c_int::MAX));
        self.set(preferred, percent)
    }

    fn set(&self, attribute: CUfunction_attribute, value: c_int) -> Result<()> {
        let (context, raw) = (self.context(), self.inner.raw);
        context.bind()?;
        // SAFETY: the function lives, and the driver refuses values out of range.
        unsafe { call!(context, cuFuncSetAttribute(raw, attribute, value)) }
    }

    /// Keeps the module loaded, for graphs that launch the function.
    pub fn owner(&self) -> Owner {
        self.inner.clone()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({:?})", self.inner.raw)
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
    // SAFETY: the function belongs to this context, and the out pointer is valid.
    unsafe { call!(context, cuFuncGetAttribute(&mut value, attribute, raw)) }?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The sizes of all parameters, or `None` if the driver does not report them.
pub(crate) fn parameter_sizes(context: &Context, raw: CUfunction) -> Result<Option<Vec<usize>>> {
    let Some(ask) = context.table().cuFuncGetParamInfo else { return Ok(None) };
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function belongs to this context, and both out pointers are valid.
        match unsafe { ask(raw, sizes.len(), &mut offset, &mut size) } {
            // There is no parameter of this index.
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Some(sizes)),
            code => context.check("cuFuncGetParamInfo", code)?,
        }
        sizes.push(size);
    }
}

/// Raises the function's limit of dynamic shared memory to the device's maximum. Launches that use
/// less are unaffected.
fn allow_dynamic_shared(context: &Context, raw: CUfunction, static_bytes: u32) -> Result<()> {
    const ALWAYS_ALLOWED: u32 = 48 << 10;
    let dynamic = context.max_shared_bytes().saturating_sub(static_bytes);
    if dynamic <= ALWAYS_ALLOWED {
        return Ok(());
    }
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let dynamic = c_int::try_from(dynamic).unwrap_or(c_int::MAX);
    // SAFETY: the function belongs to this context; the driver refuses values out of range.
    unsafe { call!(context, cuFuncSetAttribute(raw, limit, dynamic)) }
}
