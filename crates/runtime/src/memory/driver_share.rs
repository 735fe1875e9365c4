//! What the driver takes of device memory for itself, beside what is allocated.
//!
//! Nothing tells it before: these are figures from measurements, which say how much room to leave.
//! They hold for the driver and device of the records that they name, and are of the right size
//! elsewhere. A simulated driver takes nothing.

use crate::pass::{Pass, Requirements};

/// Device memory is given out in pieces of this size: a buffer of half a piece or more takes whole
/// ones.
pub const PAGE_BYTES: usize = 2 << 20;

/// What an instantiated graph takes for each kernel. On an H200 with driver 580 a step of 8882
/// nodes took 177 MiB beside its buffers, one of 1525 took 21 to 41
/// (`docs/hardware/2026-11-22-real-models`).
pub const GRAPH_NODE_BYTES: usize = 20 << 10;

/// What the code of an image takes, on average: 44 images for `sm_90` have 3.6 MB
/// (`cargo xtask prewarm --bundle`).
pub const IMAGE_BYTES: usize = 83 << 10;

/// The device bytes that the driver is expected to take, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DriverShare {
    /// Graphs that are ready to be launched.
    pub graphs: usize,
    /// Code.
    pub code: usize,
    /// What is left over of the last page of large allocations.
    pub rounding: usize,
}

impl DriverShare {
    /// All of it.
    pub fn total(&self) -> usize {
        self.graphs + self.code + self.rounding
    }

    /// With the graph of `pass`.
    pub fn with_graph(self, pass: &Pass) -> Self {
        Self { graphs: self.graphs + pass.operations().len() * GRAPH_NODE_BYTES, ..self }
    }

    /// With the code of all that is required, in place of what there was.
    pub fn with_code(self, requirements: &Requirements) -> Self {
        let images = requirements.images().len() + requirements.custom().len();
        Self { code: (images * IMAGE_BYTES).next_multiple_of(PAGE_BYTES), ..self }
    }

    /// With an allocation of `bytes`.
    pub fn with_allocation(self, bytes: usize) -> Self {
        let unused = bytes.next_multiple_of(PAGE_BYTES) - bytes;
        // Smaller ones share a page.
        let unused = if bytes >= PAGE_BYTES / 2 { unused } else { 0 };
        Self { rounding: self.rounding + unused, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_end_with_a_page_and_small_ones_share_one() {
        let unused = |bytes| DriverShare::default().with_allocation(bytes).rounding;
        assert_eq!([0, 4, 1 << 19].map(unused), [0, 0, 0]);
        assert_eq!([1 << 20, 2 << 20, (2 << 20) + 1].map(unused), [1 << 20, 0, (2 << 20) - 1]);
        let twice = DriverShare::default().with_allocation(3 << 20).with_allocation(5 << 20);
        assert_eq!((twice.rounding, twice.total()), (2 << 20, 2 << 20));
    }
}
