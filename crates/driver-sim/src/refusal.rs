//! Errors that calls return.
//!
//! Every error of the simulator is a [`Refusal`]: a code, and the [`Rule`] that it follows. The
//! index of [`attested`](crate::attested) errors names the trace, recorded on hardware, that shows
//! the rule. With [`Config::attested_only`](crate::Config::attested_only), the simulator returns no
//! error without such a trace, because hardware may behave differently.

use std::fmt;

use retrograph_driver_sys::CUresult;

use crate::attested;
use crate::diagnostic::DiagnosticKind;
use crate::state::State;

pub(crate) use crate::rule::Rule;

/// The code that a call returns, and the rule by which it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) rule: Rule,
    /// The kind of the diagnostic, if the simulator cannot do what hardware does.
    pub(crate) kind: Option<DiagnosticKind>,
}

/// Refuses a call as hardware does.
pub(crate) const fn refuse(code: CUresult, rule: Rule) -> Refusal {
    Refusal { code, rule, kind: None }
}

/// Refuses an argument as hardware does.
pub(crate) const fn invalid(rule: Rule) -> Refusal {
    refuse(CUresult::CUDA_ERROR_INVALID_VALUE, rule)
}

impl Refusal {
    /// The refusal of a feature that the simulator does not implement. The call changes nothing.
    pub(crate) const UNSUPPORTED: Self = Self {
        code: CUresult::CUDA_ERROR_NOT_SUPPORTED,
        rule: Rule::Unsupported,
        kind: Some(DiagnosticKind::Unsupported),
    };

    /// The refusal of undefined behaviour. The simulator stops.
    pub(crate) const UNDEFINED: Self = Self {
        code: CUresult::CUDA_ERROR_UNKNOWN,
        rule: Rule::Undefined,
        kind: Some(DiagnosticKind::Undefined),
    };

    /// The call waits for a host function and is then repeated ([`crate::work::Attempt`]). Programs
    /// never see this refusal.
    pub(crate) const SUSPENDED: Self = refuse(CUresult::CUDA_SUCCESS, Rule::Pending);
}

/// An error that a simulated call returned: the rule, the function and the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The rule of the simulator.
    pub rule: Rule,
    /// The function of the driver.
    pub call: &'static str,
    /// The returned code.
    pub code: CUresult,
}

impl Refused {
    /// The name of the recorded trace that attests the error, if there is one.
    pub fn trace(&self) -> Option<&'static str> {
        attested::trace(self.rule, self.call, self.code)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} by rule {}", self.call, self.code, self.rule)
    }
}

impl State {
    /// Returns the code of a failed call. Undefined behaviour stops the world.
    pub(crate) fn conclude(&mut self, refusal: Refusal) -> CUresult {
        match refusal.kind {
            Some(DiagnosticKind::Undefined) => return self.stop(refusal.code),
            Some(_) => return refusal.code,
            None if refusal.rule == Rule::Injected => return refusal.code,
            None => {}
        }
        let refused = Refused { rule: refusal.rule, call: self.call, code: refusal.code };
        self.refused.insert(refused);
        if self.config.attested_only && refused.trace().is_none() {
            let message = format!("no recorded trace attests {refused}");
            self.diagnose(DiagnosticKind::Unattested, message);
            return CUresult::CUDA_ERROR_NOT_SUPPORTED;
        }
        refusal.code
    }

    /// Stops the world: every later call that needs the machine returns `code`.
    pub(crate) fn stop(&mut self, code: CUresult) -> CUresult {
        self.stopped = Some(code);
        code
    }
}
