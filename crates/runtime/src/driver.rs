//! The driver: a table of functions, and where it came from.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use retrograph_driver_sys::{CUresult, DriverTable, LoadError};

use crate::error::{CallError, Error, Result};
use crate::version::DriverVersion;

/// Where the functions came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A driver library.
    Library {
        /// The file that was asked for; `None` for the driver that the system's loader finds.
        path: Option<PathBuf>,
    },
    /// A simulated driver; results say so wherever they are shown.
    Simulated,
}

/// An initialized driver. Clones share it.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use retrograph_runtime::{Context, DeviceIndex, Driver};
///
/// let driver = Driver::simulated(Default::default())?;
/// let context = Context::new(&driver, DeviceIndex(0))?;
/// assert!(context.info()?.name.contains("SIMULATED"));
/// # }
/// # Ok::<(), retrograph_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    table: DriverTable,
    origin: Origin,
    version: DriverVersion,
    /// What the table's functions need to stay callable.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "held, not read"))]
    keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

impl Driver {
    /// Loads the driver library of this machine and initializes it. Several loads share
    /// the contexts of the devices, see [`crate::Context::new`].
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], or the failed initialization.
    pub fn load() -> Result<Self> {
        Self::loaded(DriverTable::load(), None)
    }

    /// Loads the driver library at `path` and initializes it.
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

    /// Takes a table that somebody else filled, and keeps `keep_alive` for as long as it is used.
    ///
    /// # Safety
    /// Every function of the table must behave as the driver function of its name, and must stay
    /// callable while `keep_alive` exists.
    ///
    /// # Errors
    /// [`Error::DriverTooOld`], or the failed initialization.
    pub unsafe fn from_table(
        table: DriverTable,
        origin: Origin,
        keep_alive: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let version = initialize(&table)?;
        let inner = Inner { table, origin, version, keep_alive };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A simulated driver in a world of its own, which ends with the last clone.
    ///
    /// # Errors
    /// When the configuration is not possible, or when too many simulators live at once.
    #[cfg(feature = "sim")]
    pub fn simulated(config: retrograph_driver_sim::Config) -> Result<Self> {
        let simulator = retrograph_driver_sim::Simulator::new(config)
            .map_err(|error| Error::NoSimulator { reason: error.to_string() })?;
        let table = *simulator.table();
        // SAFETY: the simulator implements each function by the driver's rules, and its world
        // lives for as long as the simulator, which is kept.
        unsafe { Self::from_table(table, Origin::Simulated, Some(Arc::new(simulator))) }
    }

    /// The simulator behind this driver: for its diagnostics, which say more than a code can, and
    /// for making calls fail. `None` for every driver that [`Driver::simulated`] did not make, and
    /// whose `keep_alive` is no simulator.
    #[cfg(feature = "sim")]
    pub fn simulator(&self) -> Option<&retrograph_driver_sim::Simulator> {
        self.inner.keep_alive.as_ref()?.downcast_ref()
    }

    /// The driver's functions.
    pub fn table(&self) -> &DriverTable {
        &self.inner.table
    }

    /// Where they came from.
    pub fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    /// Whether the driver is a simulated one.
    pub fn is_simulated(&self) -> bool {
        self.inner.origin == Origin::Simulated
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> DriverVersion {
        self.inner.version
    }

    /// Turns the code of `call` into a result, with the driver's own name and sentence.
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<(), CallError> {
        check(&self.inner.table, call, code)
    }

    /// Adds what a simulator knows of a fault: kernel, thread, address. Hardware says no more than
    /// the code.
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
            Error::DriverTooOld { found, needed: DriverVersion::LEAST }
        }
        other => Error::UnusableDriver { reason: other.to_string() },
    }
}

/// The version comes first, since it needs no initialization and explains why one may fail.
fn initialize(table: &DriverTable) -> Result<DriverVersion> {
    let mut number = 0;
    // SAFETY: the place is valid, and the call needs no initialization.
    check(table, "cuDriverGetVersion", unsafe { (table.cuDriverGetVersion)(&mut number) })?;
    let found = DriverVersion::from_number(number);
    if found < DriverVersion::LEAST {
        return Err(Error::DriverTooOld { found, needed: DriverVersion::LEAST });
    }
    // SAFETY: 0 is the only flag value there is.
    check(table, "cuInit", unsafe { (table.cuInit)(0) })?;
    Ok(found)
}

fn check(table: &DriverTable, call: &'static str, code: CUresult) -> Result<(), CallError> {
    if code.is_success() {
        return Ok(());
    }
    let name = text(|place| {
        // SAFETY: `text` gives a valid place; the driver stores a static string or null.
        unsafe { (table.cuGetErrorName)(code, place) }
    });
    let description = text(|place| {
        // SAFETY: as above.
        unsafe { (table.cuGetErrorString)(code, place) }
    });
    Err(CallError { call, code, name, description })
}

fn text(ask: impl FnOnce(*mut *const c_char) -> CUresult) -> Box<str> {
    let mut text = std::ptr::null();
    if !ask(&mut text).is_success() || text.is_null() {
        return "unknown to this driver".into();
    }
    // SAFETY: the driver said that it stored a zero-ended string, and such strings are static.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into()
}
