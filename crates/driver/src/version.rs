//! Driver versions.

use std::fmt;

use retrograph_driver_sys::MIN_VERSION;

/// The CUDA version that a driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl DriverVersion {
    /// The oldest supported version: it introduced the versioned graph functions.
    pub const MIN: Self = Self::from_number(MIN_VERSION);

    /// Decodes the driver's number: 1000 × major + 10 × minor.
    pub const fn from_number(number: i32) -> Self {
        let number = number.unsigned_abs();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
