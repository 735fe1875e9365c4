//! Finding NCCL at run time.

use std::ffi::{CStr, c_void};
use std::path::Path;

use retrograph_driver_sys::loader::{message, tried_names};

use crate::result::ncclResult_t;
use crate::table::NcclTable;

/// Names of the library, in the order in which [`NcclTable::load`] tries them. The second exists if
/// only the development link was installed.
pub const LIBRARY_NAMES: &[&str] = &["libnccl.so.2", "libnccl.so"];

/// The oldest NCCL that is supported: 2.18.3.
pub const MIN_VERSION: i32 = 21803;

/// The reason why NCCL could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error(
        "NCCL was not found ({}); install it, for example with `pip install nvidia-nccl-cu13`, and \
         name the folder of libnccl.so.2 in LD_LIBRARY_PATH",
        tried_names(tried)
    )]
    NotFound {
        /// Each name that was tried, with the error of the dynamic loader.
        tried: Vec<(String, String)>,
    },
    /// The library was opened, but it is not a complete NCCL.
    #[error("{library} (version {version:?}) does not export {symbol}; install NCCL 2.18 or later")]
    MissingSymbol {
        /// The library.
        library: String,
        /// The first missing symbol.
        symbol: &'static str,
        /// The version, if it could be queried.
        version: Option<i32>,
    },
    /// The library is older than [`MIN_VERSION`].
    #[error(
        "{library} is NCCL {}, and {} is the oldest that works; install a newer one",
        dotted(*version), dotted(MIN_VERSION)
    )]
    TooOld {
        /// The library.
        library: String,
        /// The version, as 10000 × major + 100 × minor + patch.
        version: i32,
    },
    /// The library did not report its version.
    #[error("{library} did not report its version: {code}")]
    NoVersion {
        /// The library.
        library: String,
        /// The result of `ncclGetVersion`.
        code: ncclResult_t,
    },
}

impl LoadError {
    /// The names that were tried, each with the error of the dynamic loader. Empty if a library was
    /// opened.
    pub fn tried(&self) -> String {
        match self {
            Self::NotFound { tried } => tried_names(tried),
            _ => String::new(),
        }
    }
}

/// Formats a version as major.minor.patch.
fn dotted(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

impl NcclTable {
    /// Loads NCCL by its usual names.
    ///
    /// The library is never unloaded, so the functions are valid for the rest of the process.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for name in LIBRARY_NAMES {
            // SAFETY: these names belong to NCCL, whose initializers are safe to run.
            match unsafe { libloading::Library::new(*name) } {
                // SAFETY: a library of these names has functions of NCCL's signatures.
                Ok(library) => return unsafe { Self::from_library(name, library) },
                Err(error) => tried.push(((*name).to_owned(), message(&error))),
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// Loads NCCL from a given library.
    ///
    /// # Safety
    /// The library is NCCL: whatever it exports under the name of a function of this table has
    /// that function's signature, and its initializers are sound to run.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub unsafe fn load_from(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        // SAFETY: the caller guarantees that running the library's initializers is sound.
        match unsafe { libloading::Library::new(path) } {
            // SAFETY: the caller guarantees the signatures.
            Ok(library) => unsafe { Self::from_library(&name, library) },
            Err(error) => Err(LoadError::NotFound { tried: vec![(name, message(&error))] }),
        }
    }

    /// Fills the table from `resolve`, which returns the address of a symbol or null. `library`
    /// names the source in errors.
    ///
    /// # Safety
    /// Every address that `resolve` returns is a function of NCCL of that name, and stays valid for
    /// as long as the table or a copy of it is used.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub unsafe fn load_with(
        library: &str,
        mut resolve: impl FnMut(&CStr) -> *const c_void,
    ) -> Result<Self, LoadError> {
        let missing = |symbol, version| {
            Err(LoadError::MissingSymbol { library: library.to_owned(), symbol, version })
        };
        let address = resolve(c"ncclGetVersion");
        if address.is_null() {
            return missing("ncclGetVersion", None);
        }
        // SAFETY: the caller guarantees that the address is the function of this name.
        let get_version = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut i32) -> ncclResult_t>(
                address,
            )
        };
        let mut version = 0;
        // SAFETY: the pointer is valid.
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
    /// As for [`NcclTable::load_from`].
    unsafe fn from_library(name: &str, library: libloading::Library) -> Result<Self, LoadError> {
        let resolve = |symbol: &CStr| {
            // SAFETY: the symbol is only read as an address here.
            let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
            found.map_or(std::ptr::null(), |symbol| *symbol)
        };
        // SAFETY: the caller guarantees the signatures, and the library stays loaded (see below).
        let table = unsafe { Self::load_with(name, resolve) }?;
        // NCCL has threads of its own, so that unloading it is not safe.
        std::mem::forget(library);
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn version_2_17(version: *mut i32) -> ncclResult_t {
        // SAFETY: the loader passes a valid pointer.
        unsafe { *version = 21701 };
        ncclResult_t::ncclSuccess
    }

    unsafe extern "C" fn version_2_27(version: *mut i32) -> ncclResult_t {
        // SAFETY: as above.
        unsafe { *version = 22707 };
        ncclResult_t::ncclSuccess
    }

    fn load(only: unsafe extern "C" fn(*mut i32) -> ncclResult_t) -> LoadError {
        let resolve = |symbol: &CStr| match symbol == c"ncclGetVersion" {
            true => only as *const c_void,
            false => std::ptr::null(),
        };
        // SAFETY: the one address is a function of that signature.
        unsafe { NcclTable::load_with("a library", resolve) }.unwrap_err()
    }

    #[test]
    fn an_old_library_is_named_with_both_versions() {
        let text = load(version_2_17).to_string();
        assert!(text.contains("NCCL 2.17.1, and 2.18.3 is the oldest"), "{text}");
    }

    #[test]
    fn a_missing_symbol_is_named() {
        let text = load(version_2_27).to_string();
        assert!(text.contains("ncclGetUniqueId") && text.contains("22707"), "{text}");
    }

    #[test]
    fn a_missing_library_says_how_to_get_it() {
        // SAFETY: there is no such library, so nothing runs.
        let error = unsafe { NcclTable::load_from(Path::new("no/libnccl.so.2")) }.unwrap_err();
        let LoadError::NotFound { tried } = &error else { panic!("{error}") };
        // The dynamic loader names the file.
        assert!(tried[0].1.contains("no/libnccl.so.2"), "{tried:?}");
        let text = error.to_string();
        assert!(text.contains("no/libnccl.so.2") && text.contains("nvidia-nccl-cu13"), "{text}");
    }
}
