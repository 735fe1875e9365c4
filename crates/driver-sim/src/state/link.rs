//! Linker invocations (`cuLinkCreate`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::image::Image;
use crate::jit::JitLog;

/// A linker invocation.
#[derive(Default)]
pub(crate) struct Link {
    /// The modules added so far, each with its name in messages.
    pub(crate) inputs: Vec<(String, Arc<Image>)>,
    /// The public names that the modules define.
    pub(crate) names: BTreeSet<String>,
    /// Whether a name was defined twice. Every later call fails.
    pub(crate) is_broken: bool,
    /// Whether the archive of libcudadevrt was added.
    pub(crate) has_device_runtime: bool,
    /// The log of messages.
    pub(crate) log: JitLog,
    /// The result with a final zero, after `cuLinkComplete`.
    pub(crate) image: Option<Vec<u8>>,
}
