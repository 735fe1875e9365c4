//! [`ncclResult_t`]: the result of every call.

use std::fmt;

/// Declares the codes with their meanings.
macro_rules! result_codes {
    ($($(#[doc = $meaning:literal])* $name:ident = $value:literal $(since $since:literal)?;)*) => {
        impl ncclResult_t {
            $(
                $(#[doc = $meaning])*
                $(#[doc = concat!("\n\nSince NCCL ", stringify!($since), ".")])?
                pub const $name: Self = Self($value);
            )*

            /// The name of the code in nccl.h; `None` for a code of a newer NCCL.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The meaning of the code; `None` for a code of a newer NCCL.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(concat!($($meaning),*)),)*
                    _ => None,
                }
            }
        }
    };
}

/// The result of a call: an integer, not an enum, so that a code of a newer NCCL is kept, compared
/// and printed.
///
/// ```
/// use retrograph_nccl_sys::ncclResult_t;
///
/// assert_eq!(ncclResult_t(6), ncclResult_t::ncclRemoteError);
/// assert_eq!(ncclResult_t(6).to_string(), "ncclRemoteError (6)");
/// assert_eq!(ncclResult_t(99).to_string(), "unknown NCCL result (99)");
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "this result is the only sign that a call failed"]
pub struct ncclResult_t(pub u32);

result_codes! {
    /// The call succeeded.
    ncclSuccess = 0;
    /// A CUDA call inside of NCCL failed.
    ncclUnhandledCudaError = 1;
    /// A call of the operating system failed.
    ncclSystemError = 2;
    /// An internal check failed: a bug of NCCL, or damaged memory.
    ncclInternalError = 3;
    /// An argument has an invalid value.
    ncclInvalidArgument = 4;
    /// The call is not allowed here, or ranks disagree.
    ncclInvalidUsage = 5;
    /// Another rank failed, or the network did.
    ncclRemoteError = 6;
    /// The call goes on in the background.
    ncclInProgress = 7;
    /// A limit of time has passed.
    ncclTimeout = 8 since 23203;
}

impl ncclResult_t {
    /// Whether the call succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for success and the code itself for everything else.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for ncclResult_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown NCCL result"), self.0)
    }
}

impl fmt::Debug for ncclResult_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ncclResult_t {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_newer_nccl_survives_as_a_number() {
        let code = ncclResult_t(77);
        assert_eq!((code.name(), code.meaning()), (None, None));
        assert_eq!(code.ok(), Err(ncclResult_t(77)));
        assert!(format!("{code:?}").contains("77"));
    }

    #[test]
    fn known_codes_have_names_and_meanings() {
        for code in (0..9).map(ncclResult_t) {
            assert!(code.name().is_some_and(|name| name.starts_with("nccl")), "{code}");
            assert!(code.meaning().is_some_and(|meaning| meaning.len() > 10), "{code}");
        }
        assert_eq!(ncclResult_t::ncclSuccess.ok(), Ok(()));
    }
}
