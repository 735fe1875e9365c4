//! Buffers that were bound elsewhere, and what must follow.

use super::bindings::External;
use crate::library::Cublas;

/// What has to follow a move of buffers.
pub(super) struct Moved {
    /// Positions of the commands that name a moved buffer.
    pub(super) commands: Vec<usize>,
    pub(super) tables: bool,
    /// What was bound before.
    pub(super) before: Vec<External>,
    /// The handle of cuBLAS that did the products before, if another one does now.
    pub(super) handle: Option<Cublas>,
    /// Whether the device may hold addresses of both, should the move fail from here on.
    pub(super) mixed: bool,
}
