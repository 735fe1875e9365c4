//! What a program is built from.

use super::arena::Sharing;
use super::bindings::Bindings;
use super::options::BuildOptions;
use crate::pass::Pass;

/// What a program is built from.
pub(super) struct Blueprint<'a> {
    pub(super) pass: &'a Pass,
    pub(super) bindings: &'a Bindings,
    pub(super) options: BuildOptions,
    /// Whether transients are in an arena of several programs.
    pub(super) sharing: Option<Sharing<'a>>,
}
