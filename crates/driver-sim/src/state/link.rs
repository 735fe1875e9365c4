//! Linkers at work.

use std::collections::BTreeSet;

use crate::jit::JitLog;

/// Images that are being linked.
#[derive(Default)]
pub(crate) struct Link {
    /// The texts that were added.
    pub(crate) inputs: Vec<String>,
    /// The names that they define for each other.
    pub(crate) names: BTreeSet<String>,
    /// Whether a name was defined twice, after which nothing can be linked.
    pub(crate) is_broken: bool,
    /// Where messages go.
    pub(crate) log: JitLog,
    /// The result, with a final zero, once it is complete.
    pub(crate) image: Option<Vec<u8>>,
}
