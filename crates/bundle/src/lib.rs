//! Bundles: files of compiled CUDA images, found by the hash of their PTX.
//!
//! A [`Bundle`] has the code of any number of images for any number of SM targets in one file,
//! which a program ships or contains. It is read without a device and without a CUDA installation.

mod assembler;
mod build;
mod bundle;
mod contents;
mod digest;
mod index;
mod regular_file;
mod write;

pub use assembler::{AssembleError, Assembler};
pub use build::{BundleBuildError, BundleImage};
pub use bundle::{Bundle, BundleError};
pub use digest::{Digest, digest_of};
pub use index::{BundleEntry, IndexEntry};
pub use regular_file::open_regular;

/// The crate of SM targets.
pub use retrograph_ptx as ptx;

/// Compiles the example of README.md as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
