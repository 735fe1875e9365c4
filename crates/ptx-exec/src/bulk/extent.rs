//! The extent of a bulk copy: contiguous bytes, or a box of a tensor.

use std::ops::Range;

use retrograph_ptx::ast::StateSpace;

use super::tensor::{PIECE, Piece, pieces};
use super::undefined;
use crate::access::Memories;
use crate::fault::FaultKind;
use crate::tensor_map::{MAX_DIMENSIONS, TensorMap};
use crate::undefined::ProxyMisuse;

/// The extent of a copy.
#[derive(Clone, Debug)]
pub(super) enum Extent {
    /// `bytes` bytes of global memory from `global` on.
    Run { global: u64, bytes: u64 },
    /// A box of a tensor.
    Tensor { map: Box<TensorMap>, first: [i32; MAX_DIMENSIONS] },
}

impl Extent {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Run { bytes, .. } => *bytes,
            Self::Tensor { map, .. } => map.box_bytes(),
        }
    }

    /// Bytes of shared memory that the copy takes, with those between its rows.
    pub(super) fn shared_bytes(&self) -> u64 {
        match self {
            Self::Run { bytes, .. } => *bytes,
            Self::Tensor { map, .. } => map.shared_bytes(),
        }
    }

    pub(super) fn pieces(&self, shared: u64) -> Vec<Piece> {
        match self {
            Self::Run { global, bytes } => (0..bytes / PIECE)
                .map(|index| Piece {
                    shared: shared + index * PIECE,
                    before: 0,
                    bytes: PIECE,
                    global: global + index * PIECE,
                })
                .collect(),
            Self::Tensor { map, first } => pieces(map, *first, shared),
        }
    }

    /// Checks alignment and bounds.
    pub(super) fn check(&self, memories: &Memories<'_>, shared: u64) -> Result<(), FaultKind> {
        let unit = match self {
            Self::Run { global, bytes } => {
                if !bytes.is_multiple_of(PIECE) || !global.is_multiple_of(PIECE) {
                    return undefined(ProxyMisuse::CopyAlignment {
                        address: *global,
                        bytes: *bytes,
                    });
                }
                PIECE
            }
            Self::Tensor { .. } => 128,
        };
        if !shared.is_multiple_of(unit) {
            let bytes = unit as u32;
            return Err(FaultKind::Misaligned {
                address: shared,
                bytes,
                space: StateSpace::Shared,
            });
        }
        memories.shared_bytes(shared, self.shared_bytes())?;
        for piece in self.pieces(shared).iter().filter(|piece| piece.bytes > 0) {
            memories.global_bytes(piece.global, piece.bytes)?;
        }
        Ok(())
    }
}

pub(super) fn range(shared: u64, extent: &Extent) -> Range<u64> {
    shared..shared + extent.shared_bytes()
}

pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
