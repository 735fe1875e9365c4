//! Rebound buffers, and the state of the device update that follows.

use super::bindings::External;
use crate::library::Cublas;

/// The changes of a rebind that the device must follow.
pub(super) struct Moved {
    /// Positions of the commands that use a moved buffer.
    pub(super) commands: Vec<usize>,
    pub(super) tables: bool,
    /// The previous bindings.
    pub(super) before: Vec<External>,
    /// The previous cuBLAS handle, if it was replaced.
    pub(super) handle: Option<Cublas>,
    /// Whether the device may hold both old and new addresses.
    pub(super) mixed: bool,
}
