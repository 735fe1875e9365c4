//! The error of code that is not loaded.

/// Compiled code that was not passed to the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The code is neither a cubin nor a fatbin nor, for a simulated driver, text.
    #[error("it is not machine code for CUDA devices, neither a cubin nor a fatbin")]
    NoCode,
    /// The code is a fatbin in another format.
    #[error("it is a fatbin of version {found}, but only version 1 is known")]
    FatbinVersion {
        /// Its version.
        found: u16,
    },
    /// The code is shorter than its header requires.
    #[error("it has {found} bytes, but its header requires {needed}")]
    Truncated {
        /// Its length in bytes.
        found: usize,
        /// The length according to its header.
        needed: u64,
    },
}
