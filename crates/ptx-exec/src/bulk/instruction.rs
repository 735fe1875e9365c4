//! Decoded instructions and their operands.

use retrograph_ptx::ast::{StateSpace, Type};

use super::undefined;
use crate::access::locate;
use crate::fault::FaultKind;
use crate::program::Width;
use crate::registers::{Offset, RegisterFile};
use crate::undefined::ProxyMisuse;

/// The kind of an instruction, with the order of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `mbarrier.init`: address, count.
    Init,
    /// `mbarrier.inval`: address.
    Invalidate,
    /// `mbarrier.arrive`: address, arrivals, expected bytes.
    Arrive {
        /// Whether the arrival may complete the phase.
        completes: bool,
        /// Whether bytes are expected.
        expects: bool,
    },
    /// `mbarrier.expect_tx` and `mbarrier.complete_tx`: address, bytes.
    CountBytes {
        /// Whether this is `expect_tx`; otherwise `complete_tx`.
        expected: bool,
    },
    /// `mbarrier.try_wait` and `mbarrier.test_wait`: address, phase or its parity.
    Wait {
        /// Whether the operand is a parity.
        parity: bool,
    },
    /// `fence.mbarrier_init`.
    Fence,
    /// A load of contiguous bytes: destination, source, bytes, mbarrier, and with multicast the
    /// block mask.
    LoadRun {
        /// Whether it loads to several blocks of the cluster.
        multicast: bool,
    },
    /// A store of contiguous bytes: destination, source, bytes.
    StoreRun {
        /// The elements, if it adds them to the destination.
        adds: Option<Type>,
    },
    /// A load of a box: destination, tensor map, mbarrier, coordinates, and with multicast the
    /// block mask.
    LoadBox {
        /// Whether it loads to several blocks of the cluster.
        multicast: bool,
    },
    /// A store of a box: source, tensor map, coordinates.
    StoreBox {
        /// Whether it adds to the destination.
        adds: bool,
    },
    /// `cp.async.bulk.commit_group`.
    Commit,
    /// `cp.async.bulk.wait_group`.
    WaitGroup {
        /// Groups that may stay in flight.
        open: u32,
        /// Whether only the sources must have been read.
        read: bool,
    },
    /// `setmaxnreg`.
    Registers {
        /// Registers of each thread afterwards.
        count: u32,
        /// Whether the instruction is `setmaxnreg.inc`.
        increases: bool,
    },
    /// `mapa`: address, block.
    MapAddress,
    /// `getctarank`: address.
    RankOfAddress,
}

/// An input operand: a value, or an address plus an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) register: Offset,
    pub(crate) width: Width,
    pub(crate) offset: i64,
    /// The state space of an address; `None` if generic.
    pub(crate) space: Option<StateSpace>,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct BulkInstruction {
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<Input>,
    /// The destination: the state of an arrival, the result of a wait, an address, or a rank.
    pub(crate) output: Option<(Offset, Width)>,
}

impl Input {
    /// The value of a lane.
    ///
    /// # Safety
    ///
    /// The register must belong to the file and have this width.
    pub(super) unsafe fn value(&self, file: RegisterFile, lane: usize) -> u64 {
        // SAFETY: by the contract.
        let value = unsafe { file.lane(self.register, self.width, lane) };
        let value = value.wrapping_add(self.offset as u64);
        if self.width == Width::Word { value & 0xffff_ffff } else { value }
    }

    /// Converts an address to a shared-memory address.
    pub(super) fn shared(&self, address: u64) -> Result<u64, FaultKind> {
        match locate(self.space, address) {
            (StateSpace::Shared, address) => Ok(address),
            (space, _) => undefined(ProxyMisuse::NotShared { address, space }),
        }
    }
}

impl BulkInstruction {
    /// Writes the output of a lane, if there is one.
    ///
    /// # Safety
    ///
    /// The register must belong to the file.
    pub(super) unsafe fn put(&self, file: RegisterFile, lane: usize, value: u64) {
        if let Some((register, width)) = self.output {
            // SAFETY: by the contract.
            unsafe { file.set_lane(register, width, lane, value) };
        }
    }
}
