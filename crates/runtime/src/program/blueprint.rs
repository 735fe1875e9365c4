//! The inputs of building a program.

use super::arena::Sharing;
use super::bindings::Bindings;
use super::options::BuildOptions;
use crate::pass::Pass;

/// The inputs of building a program.
pub(super) struct Blueprint<'a> {
    pub(super) pass: &'a Pass,
    pub(super) bindings: &'a Bindings,
    pub(super) options: BuildOptions,
    /// Whether transients are in an arena of several programs.
    pub(super) sharing: Option<Sharing<'a>>,
}
