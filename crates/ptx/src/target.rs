//! SM targets and PTX ISA versions: which image runs on which device.

use std::fmt;
use std::str::FromStr;

/// A version of the PTX instruction set architecture, the `.version` line of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IsaVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl IsaVersion {
    /// Version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for IsaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What an image is generated for, the `.target` line of an image: `sm_75` to `sm_120`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmTarget {
    /// Compute capability as `major * 10 + minor`, for example 90.
    pub number: u32,
    /// An architecture-specific target such as `sm_90a`, whose images run on exactly that device.
    pub exact: bool,
}

impl SmTarget {
    /// The targets for which the workspace generates images.
    pub const GENERATED: [Self; 7] = [
        Self::portable(75),
        Self::portable(80),
        Self::portable(86),
        Self::portable(89),
        Self::portable(90),
        Self::portable(100),
        Self::portable(120),
    ];

    /// The forward-compatible target `sm_<number>`.
    pub const fn portable(number: u32) -> Self {
        Self { number, exact: false }
    }

    /// Whether an image for this target can be loaded on a device of compute capability
    /// `major.minor`: exact targets on that device alone, others on it and every later one.
    pub fn runs_on(self, major: u32, minor: u32) -> bool {
        let device = major * 10 + minor;
        if self.exact { device == self.number } else { device >= self.number }
    }

    /// The newest generated target whose images run on a device of compute capability
    /// `major.minor`, or `None` for a device older than all of them.
    pub fn for_device(major: u32, minor: u32) -> Option<Self> {
        Self::GENERATED.into_iter().rev().find(|target| target.runs_on(major, minor))
    }

    /// The least PTX ISA version that knows this target.
    ///
    /// Source: the release notes table of the PTX ISA manual.
    pub fn least_isa(self) -> IsaVersion {
        match self.number {
            0..=75 => IsaVersion::new(6, 3),
            76..=80 => IsaVersion::new(7, 0),
            81..=86 => IsaVersion::new(7, 1),
            87..=90 => IsaVersion::new(7, 8),
            91..=100 => IsaVersion::new(8, 6),
            _ => IsaVersion::new(8, 7),
        }
    }
}

impl fmt::Display for SmTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.number, if self.exact { "a" } else { "" })
    }
}

/// The text is not the name of an SM target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an SM target; write it like sm_90 or sm_90a")]
pub struct ParseSmTargetError {
    /// The text that was given.
    pub text: String,
}

impl FromStr for SmTarget {
    type Err = ParseSmTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseSmTargetError { text: text.to_owned() };
        let rest = text.strip_prefix("sm_").ok_or_else(error)?;
        let (digits, exact) = match rest.strip_suffix('a') {
            Some(digits) => (digits, true),
            None => (rest, false),
        };
        let number = digits.parse().map_err(|_| error())?;
        Ok(Self { number, exact })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_images_run_on_later_devices_and_exact_ones_do_not() {
        assert!(SmTarget::portable(80).runs_on(9, 0));
        assert!(!SmTarget::portable(90).runs_on(8, 9));
        let exact: SmTarget = "sm_90a".parse().unwrap();
        assert!(exact.runs_on(9, 0) && !exact.runs_on(10, 0));
        assert_eq!(exact.to_string(), "sm_90a");
    }

    #[test]
    fn a_device_takes_the_newest_target_not_above_it() {
        assert_eq!(SmTarget::for_device(8, 7), Some(SmTarget::portable(86)));
        assert_eq!(SmTarget::for_device(12, 1), Some(SmTarget::portable(120)));
        assert_eq!(SmTarget::for_device(7, 0), None);
    }
}
