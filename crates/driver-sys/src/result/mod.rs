//! [`CUresult`]: the result of every driver call.

mod codes;

use std::fmt;

/// The result of a driver call: an integer, not an enum.
///
/// A newer driver may return a code that did not exist when this crate was written. In an enum that
/// would be undefined behavior; an integer is kept, compared and printed.
///
/// ```
/// use retrograph_driver_sys::CUresult;
///
/// let code = CUresult(901);
/// assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
/// assert_eq!(code.to_string(), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)");
/// assert_eq!(CUresult(12345).to_string(), "unknown CUDA result (12345)");
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "this result is the only sign that a driver call failed"]
pub struct CUresult(pub u32);

impl CUresult {
    /// Whether the call succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether the error is sticky: the context is lost, every later call in it returns this code,
    /// and only a new process gets a working context.
    pub const fn is_sticky(self) -> bool {
        matches!(self.0, 226 | 700 | 702 | 710 | 714..=719 | 721)
    }

    /// Whether a stream capture caused the code (900 to 908). Such codes are recoverable: ending
    /// the capture on its stream and thread makes the stream usable again.
    pub const fn is_capture(self) -> bool {
        matches!(self.0, 900..=908)
    }

    /// `Ok` for success and the code itself for everything else.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown CUDA result"), self.0)
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CUresult {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_codes_are_the_kernel_faults_and_no_capture_code_is_among_them() {
        let sticky: Vec<u32> =
            CUresult::KNOWN.iter().filter(|code| code.is_sticky()).map(|code| code.0).collect();
        assert_eq!(sticky, [226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721]);
        assert!(CUresult::KNOWN.iter().all(|code| !(code.is_sticky() && code.is_capture())));
    }

    #[test]
    fn known_codes_ascend_and_each_has_a_name_and_a_meaning() {
        assert!(CUresult::KNOWN.windows(2).all(|pair| pair[0] < pair[1]));
        for code in CUresult::KNOWN {
            assert!(code.name().is_some_and(|name| name.starts_with("CUDA_")), "{code}");
            assert!(code.meaning().is_some_and(|meaning| meaning.len() > 10), "{code}");
        }
    }

    #[test]
    fn a_code_of_a_newer_driver_survives_as_a_number() {
        let code = CUresult(7777);
        assert_eq!(code.name(), None);
        assert_eq!(code.ok(), Err(CUresult(7777)));
        assert!(format!("{code:?}").contains("7777"));
    }
}
