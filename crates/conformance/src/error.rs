//! Errors in scenarios, with their locations.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A line of a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// An error in a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ScenarioError {
    /// The location.
    pub place: Location,
    /// The error.
    pub problem: Problem,
}

/// The kinds of errors in scenarios.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line does not follow the grammar.
    #[error("{expected}, found `{found}`")]
    Syntax {
        /// The expected text.
        expected: &'static str,
        /// The text at this place.
        found: String,
    },
    /// An undefined name.
    #[error("undefined {kind} `{name}`")]
    Unknown {
        /// The kind of the name.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A call with the wrong number of arguments.
    #[error("{function} takes {expected} arguments, not {found}")]
    Arguments {
        /// The function.
        function: &'static str,
        /// The number of parameters.
        expected: usize,
        /// The number of arguments.
        found: usize,
    },
    /// A value that does not fit its type.
    #[error("{value} is not a `{of}`")]
    Value {
        /// The value as written.
        value: String,
        /// The type.
        of: String,
    },
    /// A limit of the runner.
    #[error("{what}")]
    Limit {
        /// The limit.
        what: &'static str,
    },
    /// A file that cannot be read.
    #[error("cannot read the file: {reason}")]
    File {
        /// The error of the system.
        reason: String,
    },
}

impl Problem {
    pub(crate) fn syntax<T>(expected: &'static str, found: impl Into<String>) -> Result<T, Self> {
        Err(Self::Syntax { expected, found: found.into() })
    }

    pub(crate) fn unknown<T>(kind: &'static str, name: impl Into<String>) -> Result<T, Self> {
        Err(Self::Unknown { kind, name: name.into() })
    }

    pub(crate) fn value<T>(value: impl fmt::Debug, of: impl fmt::Debug) -> Result<T, Self> {
        Err(Self::Value { value: format!("{value:?}"), of: format!("{of:?}") })
    }

    pub(crate) fn at(self, place: &Location) -> ScenarioError {
        ScenarioError { place: place.clone(), problem: self }
    }
}
