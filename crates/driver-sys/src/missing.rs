//! [`MissingFunction`]: a function that the driver lacks.

use std::fmt;

/// An optional function that the loaded driver lacks.
///
/// Only its use fails; everything else of the driver works.
///
/// ```
/// use retrograph_driver_sys::MissingFunction;
///
/// let missing =
///     MissingFunction { name: "cuGraphAddNode_v2", since: 12030, driver_version: 12000 };
/// assert_eq!(
///     missing.to_string(),
///     "cuGraphAddNode_v2 needs a driver for CUDA 12.3, and this one is for CUDA 12.0",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFunction {
    /// The exact symbol.
    pub name: &'static str,
    /// The CUDA version of the first driver that exports it, as 1000 × major + 10 × minor.
    pub since: i32,
    /// The CUDA version of the loaded driver.
    pub driver_version: i32,
}

impl fmt::Display for MissingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (since, version) = (Version(self.since), Version(self.driver_version));
        if self.driver_version < self.since {
            write!(f, "{} needs a driver for {since}, and this one is for {version}", self.name)
        } else {
            write!(f, "{} is missing, though drivers have it since {since} ", self.name)?;
            write!(f, "and this one is for {version}")
        }
    }
}

impl std::error::Error for MissingFunction {}

/// A CUDA version for display.
struct Version(i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}
