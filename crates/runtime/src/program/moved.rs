//! Rebound buffers, and the state of the following device update.

use retrograph_driver::Error;

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
    /// The first tensor map that the driver refused to encode, before the device was changed.
    pub(super) refused: Option<Error>,
    /// Whether the device may hold both old and new addresses.
    pub(super) mixed: bool,
}
