//! Finding the driver at run time.

use std::ffi::{CStr, c_void};
use std::path::Path;

use crate::loader::{message, tried_names};
use crate::result::CUresult;
use crate::table::DriverTable;

/// Names of the driver's library, in the order in which [`DriverTable::load`] tries them.
///
/// The second is the host's driver as mounted by the Windows subsystem for Linux; the third exists
/// if only the development link was installed.
#[cfg(not(windows))]
pub const LIBRARY_NAMES: &[&str] = &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"];

/// Names of the driver's library, in the order in which [`DriverTable::load`] tries them.
#[cfg(windows)]
pub const LIBRARY_NAMES: &[&str] = &["nvcuda.dll"];

/// The oldest driver that has every required function: CUDA 12.0.
pub const MIN_VERSION: i32 = 12000;

/// The reason why no driver could be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error(
        "no NVIDIA driver found; install one, or use the simulated driver ({})",
        tried_names(tried)
    )]
    NotFound {
        /// Each name that was tried, with the error of the dynamic loader.
        tried: Vec<(String, String)>,
    },
    /// The library was opened, but it is not a complete driver.
    #[error("{library} (driver version {version:?}) does not export {symbol}, which is required")]
    MissingSymbol {
        /// The library.
        library: String,
        /// The first missing symbol.
        symbol: &'static str,
        /// The driver's version, if it could be queried.
        version: Option<i32>,
    },
    /// The driver is older than [`MIN_VERSION`].
    #[error(
        "{library} is a driver for CUDA {}.{}, and CUDA {}.{} is the oldest that works; \
         update the NVIDIA driver to 525 or later",
        version / 1000, version % 1000 / 10, MIN_VERSION / 1000, MIN_VERSION % 1000 / 10
    )]
    TooOld {
        /// The library.
        library: String,
        /// The driver's version, as 1000 × major + 10 × minor.
        version: i32,
    },
    /// The driver did not report its version.
    #[error("{library} did not report its version: {code}")]
    NoVersion {
        /// The library.
        library: String,
        /// The result of `cuDriverGetVersion`.
        code: CUresult,
    },
}

impl DriverTable {
    /// Loads the NVIDIA driver of this machine.
    ///
    /// The library is never unloaded, so the functions are valid for the rest of the process.
    /// Nothing is initialized: `cuInit` is the caller's first call.
    ///
    /// # Errors
    /// See [`LoadError`].
    ///
    /// ```
    /// use retrograph_driver_sys::{DriverTable, LoadError};
    ///
    /// match DriverTable::load() {
    ///     Ok(driver) => {
    ///         // SAFETY: 0 is the only value that the call accepts.
    ///         println!("cuInit: {}", unsafe { (driver.cuInit)(0) });
    ///     }
    ///     Err(LoadError::NotFound { tried }) => println!("no driver among {tried:?}"),
    ///     Err(other) => println!("{other}"),
    /// }
    /// ```
    pub fn load() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for name in LIBRARY_NAMES {
            // SAFETY: these names belong to NVIDIA's driver, whose initializers are safe to run.
            match unsafe { open(name.as_ref()) } {
                // SAFETY: a library of these names has functions of the driver's signatures.
                Ok(library) => return unsafe { Self::from_library(name, library) },
                Err(error) => tried.push(((*name).to_owned(), message(&error))),
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// Loads the driver from a given library.
    ///
    /// # Safety
    /// The library is a CUDA driver: whatever it exports under the name of a function of this
    /// table has that function's signature, and its initializers are sound to run.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub unsafe fn load_from(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        // SAFETY: the caller guarantees that running the library's initializers is sound.
        match unsafe { open(path) } {
            // SAFETY: the caller guarantees the signatures.
            Ok(library) => unsafe { Self::from_library(&name, library) },
            Err(error) => Err(LoadError::NotFound { tried: vec![(name, message(&error))] }),
        }
    }

    /// Fills the table from `resolve`, which returns the address of a symbol or null: for drivers
    /// that another loader opened. `library` names the source in errors.
    ///
    /// # Safety
    /// Every address that `resolve` returns is a driver function of that name, and stays valid for
    /// as long as the table or a copy of it is used.
    ///
    /// # Errors
    /// [`LoadError`], except [`LoadError::NotFound`].
    pub unsafe fn load_with(
        library: &str,
        mut resolve: impl FnMut(&CStr) -> *const c_void,
    ) -> Result<Self, LoadError> {
        let missing = |symbol, version| {
            Err(LoadError::MissingSymbol { library: library.to_owned(), symbol, version })
        };
        let address = resolve(c"cuDriverGetVersion");
        if address.is_null() {
            return missing("cuDriverGetVersion", None);
        }
        // SAFETY: the caller guarantees that the address is the function of this name.
        let get_version = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut i32) -> CUresult>(
                address,
            )
        };
        let mut version = 0;
        // SAFETY: the pointer is valid, and the call is allowed before `cuInit`.
        let code = unsafe { get_version(&mut version) };
        if !code.is_success() {
            return Err(LoadError::NoVersion { library: library.to_owned(), code });
        }
        if version < MIN_VERSION {
            return Err(LoadError::TooOld { library: library.to_owned(), version });
        }
        // SAFETY: passed on from the caller.
        unsafe { Self::resolve(version, resolve) }.or_else(|symbol| missing(symbol, Some(version)))
    }

    /// # Safety
    /// As for [`DriverTable::load_from`].
    unsafe fn from_library(name: &str, library: libloading::Library) -> Result<Self, LoadError> {
        let resolve = |symbol: &CStr| {
            // SAFETY: the symbol is only read as an address here.
            let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
            found.map_or(std::ptr::null(), |symbol| *symbol)
        };
        // SAFETY: the caller guarantees the signatures, and the library stays loaded (see below).
        let table = unsafe { Self::load_with(name, resolve) }?;
        // Copies of the function pointers may live anywhere, and unloading a driver that has
        // threads of its own is not safe, so the library stays until the process ends.
        std::mem::forget(library);
        Ok(table)
    }
}

/// # Safety
/// Running the initializers of the library is sound.
unsafe fn open(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: passed on from the caller.
    unsafe { libloading::Library::new(path) }
}
