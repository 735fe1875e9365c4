//! Signatures of kernels: image, parameters and entry points.

use crate::Parameter;

/// The signature of a kernel: entry points of one image with the same parameters.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The name of the image, which several kernels may share.
    pub image: &'static str,
    /// The parameters of every entry point.
    pub parameters: &'static [Parameter],
    /// The entry points.
    pub entries: &'static [&'static str],
}

impl Signature {
    /// The entry point of a kernel with a single one.
    ///
    /// # Panics
    /// If the kernel has several.
    pub const fn entry(&self) -> &'static str {
        assert!(self.entries.len() == 1, "the kernel has several entry points");
        self.entries[0]
    }
}

/// A kernel over rows with two entries: one warp per narrow row, and one block per wide row.
#[derive(Clone, Copy, Debug)]
pub struct RowKernel {
    /// The signature. The first entry has one warp per row, the second one block per row.
    pub signature: Signature,
    /// Warps per block of the first entry, each with its own row.
    pub warps: u32,
    /// Threads of a block of the second entry.
    pub block_threads: u32,
}

impl RowKernel {
    /// The entry with one warp per row.
    pub const fn warp_per_row(&self) -> &'static str {
        self.signature.entries[0]
    }

    /// The entry with one block per row.
    pub const fn block_per_row(&self) -> &'static str {
        self.signature.entries[1]
    }
}
