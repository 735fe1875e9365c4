//! For build scripts: embeds your own kernels in a program, as PTX with machine code.
//!
//! ```no_run
//! // build.rs
//! use retrograph_build::{Image, Images};
//!
//! fn main() -> std::process::ExitCode {
//!     Images::new("kernels")
//!         .targets(["sm_80", "sm_90"])
//!         .image(Image::ptx_file("src/scale.ptx"))
//!         .image(Image::cuda_file("src/saxpy.cu"))
//!         .run()
//! }
//! ```
//!
//! The program includes the generated file. It has a constant with the PTX of each image, and
//! `BUNDLE`, the bytes of a [`Bundle`](retrograph_bundle::Bundle) with their machine code:
//!
//! ```ignore
//! mod kernels {
//!     include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
//! }
//! let image = CustomImage::ptx("scale", kernels::SCALE);
//! let bundle = Bundle::from_static(kernels::BUNDLE)?;
//! ```
//!
//! # Verification
//!
//! Every image is verified for each of its targets while the program is built: `ptxas` assembles
//! it, and its code is read back from the bundle. Without `ptxas`, [`Assembly`] selects an error or
//! a bundle without code; the parser of `retrograph-ptx` then checks the images.

mod error;
mod generated;
mod image;
mod images;
mod nvcc;
mod tool;

pub use error::Error;
pub use image::Image;
pub use images::{Assembly, Built, Images};
pub use retrograph_bundle::BundleBuildError;

/// The crate of SM targets and of errors of PTX.
pub use retrograph_ptx as ptx;

/// Compiles the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
