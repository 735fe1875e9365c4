//! Estimates of the device memory that the driver uses for itself, in addition to allocations.
//!
//! The driver does not report these sizes in advance. The constants were measured on the device and
//! driver of the named records; elsewhere they are estimates. A simulated driver uses no memory.

use crate::pass::{Pass, Requirements};

/// Page size of device memory: a buffer of at least half a page occupies whole pages.
pub const PAGE_BYTES: usize = 2 << 20;

/// Bytes of an instantiated graph per kernel node
/// (measured: `docs/hardware/2026-11-22-real-models`).
pub const GRAPH_NODE_BYTES: usize = 20 << 10;

/// Average bytes of the machine code of an image: 44 images for `sm_90` have 3.6 MB.
pub const IMAGE_BYTES: usize = 83 << 10;

/// Expected device bytes of the driver, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DriverOverhead {
    /// Instantiated graphs.
    pub graphs: usize,
    /// Machine code.
    pub code: usize,
    /// Unused ends of the last pages of large allocations.
    pub rounding: usize,
}

impl DriverOverhead {
    /// The sum.
    pub fn total(&self) -> usize {
        self.graphs + self.code + self.rounding
    }

    /// Adds the graph of `pass`.
    pub fn with_graph(self, pass: &Pass) -> Self {
        Self { graphs: self.graphs + pass.operations().len() * GRAPH_NODE_BYTES, ..self }
    }

    /// Sets the code to the code of all required images.
    pub fn with_code(self, requirements: &Requirements) -> Self {
        let images = requirements.images().len() + requirements.custom().len();
        Self { code: (images * IMAGE_BYTES).next_multiple_of(PAGE_BYTES), ..self }
    }

    /// Adds an allocation of `bytes`.
    pub fn with_allocation(self, bytes: usize) -> Self {
        let unused = bytes.next_multiple_of(PAGE_BYTES) - bytes;
        // Smaller allocations share a page.
        let unused = if bytes >= PAGE_BYTES / 2 { unused } else { 0 };
        Self { rounding: self.rounding + unused, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_occupy_whole_pages_and_small_ones_share_one() {
        let unused = |bytes| DriverOverhead::default().with_allocation(bytes).rounding;
        assert_eq!([0, 4, 1 << 19].map(unused), [0, 0, 0]);
        assert_eq!([1 << 20, 2 << 20, (2 << 20) + 1].map(unused), [1 << 20, 0, (2 << 20) - 1]);
        let twice = DriverOverhead::default().with_allocation(3 << 20).with_allocation(5 << 20);
        assert_eq!((twice.rounding, twice.total()), (2 << 20, 2 << 20));
    }
}
