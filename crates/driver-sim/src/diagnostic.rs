//! Diagnostics: details of a result code.

use std::fmt;

use retrograph_ptx_exec::{Fault, FaultSite};

/// The kind of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// The call or image is valid, but the simulator does not implement it.
    Unsupported,
    /// The call fails by a rule that no recorded trace attests for this function, so the code that
    /// hardware returns is not known.
    Unattested,
    /// Undefined behaviour: on hardware, it may work, fail or corrupt memory.
    Undefined,
    /// A kernel or a queued operation failed, and the context is lost.
    Fault,
    /// The first call that broke a capture.
    Capture,
    /// A panic inside the simulator: a bug of the simulator.
    Internal,
}

impl fmt::Display for DiagnosticKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "unsupported by the simulator",
            Self::Unattested => "not attested by a recorded trace",
            Self::Undefined => "undefined on hardware",
            Self::Fault => "fault",
            Self::Capture => "capture invalidated",
            Self::Internal => "internal error of the simulator",
        })
    }
}

/// A message of the simulator that explains a returned code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The kind.
    pub kind: DiagnosticKind,
    /// The call during which it was found. A fault of queued work is found by a later call.
    pub call: &'static str,
    /// The message, with names, addresses and values.
    pub message: String,
    /// The instruction and thread, if a kernel is the cause. The message names them too.
    pub site: Option<Box<FaultSite>>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.message, self.kind)
    }
}

/// The content of a diagnostic: a message, and the position in a kernel if one is the cause.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) message: String,
    pub(crate) site: Option<Box<FaultSite>>,
}

impl<T: Into<String>> From<T> for Finding {
    fn from(message: T) -> Self {
        Self { message: message.into(), site: None }
    }
}

impl Finding {
    /// The message and position of a fault.
    pub(crate) fn of(fault: &Fault) -> Self {
        Self { message: fault.to_string(), site: Some(fault.site.clone()) }
    }
}
