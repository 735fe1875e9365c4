//! Linkers at work.

use crate::jit::JitLog;

/// Images that are being linked.
#[derive(Default)]
pub(crate) struct Link {
    /// The texts that were added.
    pub(crate) inputs: Vec<String>,
    /// The kernels in them.
    pub(crate) names: Vec<String>,
    /// Whether two of them cannot be linked.
    pub(crate) is_broken: bool,
    /// Where messages go.
    pub(crate) log: JitLog,
    /// The result, with a final zero, once it is complete.
    pub(crate) image: Option<Vec<u8>>,
}
