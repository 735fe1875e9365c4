//! Mistakes in scenarios, each with its place.

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

/// A scenario that cannot be understood or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ScenarioError {
    /// Where.
    pub place: Location,
    /// What.
    pub problem: Problem,
}

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line does not follow the grammar.
    #[error("{expected}, found `{found}`")]
    Syntax {
        /// What the grammar asks for.
        expected: &'static str,
        /// The text there.
        found: String,
    },
    /// A name that nothing defines.
    #[error("there is no {kind} `{name}`")]
    Unknown {
        /// Of what kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A call with the wrong number of arguments.
    #[error("{function} takes {expected} arguments, {found} are given")]
    Arguments {
        /// The function.
        function: &'static str,
        /// How many it takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A value that does not fit its type.
    #[error("{value} cannot be a `{of}`")]
    Value {
        /// The value as written.
        value: String,
        /// The type.
        of: String,
    },
    /// A limit of the runner.
    #[error("{what}")]
    Limit {
        /// Which.
        what: &'static str,
    },
    /// A file that cannot be read.
    #[error("cannot read it: {reason}")]
    File {
        /// What the system said.
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
