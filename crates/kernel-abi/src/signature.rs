//! Signatures of kernels: image, parameters and entry points.

use crate::Parameter;

/// The signature of a kernel: entry points of one image that have the same parameters.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The name of the image, which several kernels may share.
    pub image: &'static str,
    /// The parameters of every entry point.
    pub parameters: &'static [Parameter],
    /// The entry points.
    pub entries: &'static [&'static str],
}
