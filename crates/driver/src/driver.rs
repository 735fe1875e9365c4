//! The driver: its function table and its origin.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use retrograph_driver_sys::{CUresult, DriverTable, LoadError};

use crate::call::CallError;
use crate::error::{Error, Result};
use crate::version::DriverVersion;

/// The origin of the function table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A driver library.
    Library {
        /// The requested file; `None` for the driver that the system's loader finds.
        path: Option<PathBuf>,
    },
    /// A simulated driver; reports and device names say so.
    Simulated,
}

/// An initialized driver. Clones share it.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_driver::{Context, DeviceIndex, Driver};
///
/// let driver = Driver::simulated(Default::default())?;
/// let context = Context::new(&driver, DeviceIndex(0))?;
/// assert!(context.info()?.name.contains("SIMULATED"));
/// # }
/// # Ok::<(), retrograph_driver::Error>(())
/// ```
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    table: DriverTable,
    origin: Origin,
    version: DriverVersion,
    /// Keeps the table's functions callable.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "held, not read"))]
    keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

impl Driver {
    /// Loads and initializes the driver library of this machine. Several loads share the contexts
    /// of the devices; see [`crate::Context::new`].
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::UnusableDriver`], [`Error::DriverTooOld`], or a failed driver
    /// call.
    pub fn load() -> Result<Self> {
        Self::loaded(DriverTable::load(), None)
    }

    /// Loads and initializes the driver library at `path`.
    ///
    /// # Safety
    /// The library must be a CUDA driver: its initializers run, and its functions are called with
    /// the driver's signatures.
    ///
    /// # Errors
    /// As [`Driver::load`].
    pub unsafe fn load_from(path: &Path) -> Result<Self> {
        // SAFETY: the caller promises that the file is a driver library.
        Self::loaded(unsafe { DriverTable::load_from(path) }, Some(path))
    }

    /// Initializes a driver with a given function table, and keeps `keep_alive` as long as the
    /// table is used.
    ///
    /// # Safety
    /// Every function of the table must behave like the driver function of its name, and must stay
    /// callable while `keep_alive` lives.
    ///
    /// # Errors
    /// [`Error::DriverTooOld`], or a failed driver call.
    pub unsafe fn from_table(
        table: DriverTable,
        origin: Origin,
        keep_alive: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let version = initialize(&table)?;
        let inner = Inner { table, origin, version, keep_alive };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts a simulated driver with its own devices, which end with its last clone.
    ///
    /// # Errors
    /// [`Error::NoSimulator`] for an invalid configuration, or if too many simulators are alive.
    #[cfg(feature = "sim")]
    pub fn simulated(config: retrograph_driver_sim::Config) -> Result<Self> {
        let simulator = retrograph_driver_sim::Simulator::new(config)
            .map_err(|error| Error::NoSimulator { reason: error.to_string() })?;
        let table = *simulator.table();
        // SAFETY: the simulator implements the driver's functions, and is kept alive.
        unsafe { Self::from_table(table, Origin::Simulated, Some(Arc::new(simulator))) }
    }

    /// The simulator of this driver, for its diagnostics and for injecting failures. `None` unless
    /// the driver was created by [`Driver::simulated`], or with a simulator as `keep_alive`.
    #[cfg(feature = "sim")]
    pub fn simulator(&self) -> Option<&retrograph_driver_sim::Simulator> {
        self.inner.keep_alive.as_ref()?.downcast_ref()
    }

    /// The function table.
    pub fn table(&self) -> &DriverTable {
        &self.inner.table
    }

    /// The origin of the function table.
    pub fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    /// Whether the driver is simulated.
    pub fn is_simulated(&self) -> bool {
        self.inner.origin == Origin::Simulated
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> DriverVersion {
        self.inner.version
    }

    /// Converts the code of `call` into a result, with the driver's name and description of it, for
    /// the action of a [`crate::Context::release`]. Elsewhere, use [`crate::Context::check`].
    ///
    /// # Errors
    /// Unless `code` is success.
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<(), CallError> {
        check(&self.inner.table, call, code)
    }

    /// Adds a simulator's diagnostic of a fault: kernel, thread, address. Hardware reports only the
    /// code.
    #[cfg(feature = "sim")]
    pub(crate) fn explain_fault(&self, mut error: CallError) -> CallError {
        use retrograph_driver_sim::DiagnosticKind;
        let diagnostics = self.simulator().map(|simulator| simulator.diagnostics());
        let mut newest_first = diagnostics.into_iter().flatten().rev();
        if let Some(fault) = newest_first.find(|found| found.kind == DiagnosticKind::Fault) {
            error.description = format!("{}: {}", error.description, fault.message).into();
        }
        error
    }

    #[cfg(not(feature = "sim"))]
    pub(crate) fn explain_fault(&self, error: CallError) -> CallError {
        error
    }

    fn loaded(table: Result<DriverTable, LoadError>, path: Option<&Path>) -> Result<Self> {
        let table = table.map_err(explain)?;
        let origin = Origin::Library { path: path.map(Path::to_owned) };
        // SAFETY: the loader filled the table from a driver library, which is never unloaded.
        unsafe { Self::from_table(table, origin, None) }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({:?}, CUDA {})", self.inner.origin, self.inner.version)
    }
}

fn explain(error: LoadError) -> Error {
    match error {
        LoadError::NotFound { tried } => {
            let tried: Vec<_> = tried.iter().map(|(_, reason)| reason.as_str()).collect();
            Error::NoDriver { tried: tried.join("; ") }
        }
        LoadError::TooOld { version, .. } => {
            let found = DriverVersion::from_number(version);
            Error::DriverTooOld { found, needed: DriverVersion::MIN }
        }
        other => Error::UnusableDriver { reason: other.to_string() },
    }
}

/// Queries the version first: that needs no initialization and may explain its failure.
fn initialize(table: &DriverTable) -> Result<DriverVersion> {
    let mut number = 0;
    // SAFETY: the out pointer is valid, and the call needs no initialization.
    check(table, "cuDriverGetVersion", unsafe { (table.cuDriverGetVersion)(&mut number) })?;
    let found = DriverVersion::from_number(number);
    if found < DriverVersion::MIN {
        return Err(Error::DriverTooOld { found, needed: DriverVersion::MIN });
    }
    // SAFETY: 0 is the only valid flag.
    check(table, "cuInit", unsafe { (table.cuInit)(0) })?;
    Ok(found)
}

fn check(table: &DriverTable, call: &'static str, code: CUresult) -> Result<(), CallError> {
    if code.is_success() {
        return Ok(());
    }
    let name = text(|text| {
        // SAFETY: `text` passes a valid out pointer; the driver stores a static string or null.
        unsafe { (table.cuGetErrorName)(code, text) }
    });
    let description = text(|text| {
        // SAFETY: as above.
        unsafe { (table.cuGetErrorString)(code, text) }
    });
    Err(CallError { call, code, name, description })
}

fn text(ask: impl FnOnce(*mut *const c_char) -> CUresult) -> Box<str> {
    let mut text = std::ptr::null();
    if !ask(&mut text).is_success() || text.is_null() {
        return "unknown to this driver".into();
    }
    // SAFETY: on success the driver stores a static zero-terminated string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into()
}
