//! Sources of the retrograph kernels: Rust that builds PTX, one file per image.
//!
//! Every file starts with the formula, the grid mapping and the reason why its results are
//! deterministic, and offers `module(target)`: the image for one SM target. Sizes are kernel
//! parameters; no image depends on a shape. [`images`] is what the build script of
//! `retrograph-kernels` prints and embeds.
//!
//! Absent on purpose: launch geometry and argument checks, which live in `retrograph-kernels`
//! beside the descriptors that users see.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;

// One line per image, in alphabetical order.

/// Builds one image for one SM target.
type Build = fn(SmTarget) -> Module;

/// Every image: its name and what builds it. One line each, in alphabetical order.
const IMAGES: &[(&str, Build)] = &[
];

/// Every image for `target`, by name. The names are the same for every target.
pub fn images(target: SmTarget) -> Vec<(&'static str, Module)> {
    IMAGES.iter().map(|(name, build)| (*name, build(target))).collect()
}
