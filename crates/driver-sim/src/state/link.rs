//! Linkers at work.

use crate::jit::JitLog;

/// Images that are being linked.
pub(crate) struct Link {
    /// The texts that were added.
    pub(crate) inputs: Vec<String>,
    /// Where messages go.
    pub(crate) log: JitLog,
    /// The result, with a final zero, once it is complete.
    pub(crate) image: Option<Vec<u8>>,
}
