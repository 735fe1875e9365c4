//! Versions of the driver.

use std::fmt;

use retrograph_driver_sys::LEAST_VERSION;

/// A CUDA version as the driver counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl DriverVersion {
    /// The least version that this crate works with: versioned graph functions came with it.
    pub const LEAST: Self = Self::from_number(LEAST_VERSION);

    /// From 1000 × major + 10 × minor.
    pub(crate) const fn from_number(number: i32) -> Self {
        let number = number.unsigned_abs();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
