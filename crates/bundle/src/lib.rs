//! Bundles: files of compiled CUDA images, found by the hash of the PTX that they were made from.
//!
//! A [`Bundle`] has the code of any number of images for any number of SM targets in one file,
//! which a program ships or contains. It is read without a device and without a CUDA installation.

mod bundle;
mod contents;
mod digest;
mod index;
mod regular_file;

pub use bundle::{Bundle, BundleError};
pub use digest::{Digest, digest_of};
pub use index::{BundleEntry, Listed};
pub use regular_file::open_regular;
