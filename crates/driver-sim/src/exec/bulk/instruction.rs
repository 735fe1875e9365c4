//! Decoded instructions and their operands.

use retrograph_ptx::ast::Space;

use super::undefined;
use crate::exec::access::locate;
use crate::exec::fault::FaultKind;
use crate::exec::program::Width;
use crate::exec::registers::{Offset, RegisterFile};
use crate::exec::undefined::ProxyMisuse;

/// The kind of an instruction, with the order of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum Kind {
    /// `mbarrier.init`: address, count.
    Init,
    /// `mbarrier.inval`: address.
    Invalidate,
    /// `mbarrier.arrive`: address, arrivals, bytes that are expected.
    Arrive {
        /// Whether the arrival may complete the phase.
        completes: bool,
        /// Whether bytes are expected.
        expects: bool,
    },
    /// `mbarrier.expect_tx` and `mbarrier.complete_tx`: address, bytes.
    CountBytes {
        /// Whether the bytes are expected; otherwise they have come.
        expected: bool,
    },
    /// `mbarrier.try_wait` and `mbarrier.test_wait`: address, phase or its parity.
    Wait {
        /// Whether it is a parity.
        parity: bool,
    },
    /// `fence.mbarrier_init`.
    Fence,
    /// A load of a run of bytes: target, source, bytes, barrier, and with multicast the blocks.
    LoadRun {
        /// Whether it loads to several blocks of the cluster.
        multicast: bool,
    },
    /// A store of a run of bytes: target, source, bytes.
    StoreRun,
    /// A load of a box: target, tensor map, barrier, coordinates, and with multicast the blocks.
    LoadBox {
        /// Whether it loads to several blocks of the cluster.
        multicast: bool,
    },
    /// A store of a box: source, tensor map, coordinates.
    StoreBox {
        /// Whether it adds to the target.
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
        /// How many each thread has afterwards.
        count: u32,
        /// Whether there are more than before.
        increases: bool,
    },
    /// `mapa`: address, block.
    MapAddress,
}

/// An operand that is read: a value, or an address to which something is added.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct Input {
    pub(in crate::exec) register: Offset,
    pub(in crate::exec) width: Width,
    pub(in crate::exec) offset: i64,
    /// The space of an address; generic without one.
    pub(in crate::exec) space: Option<Space>,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(in crate::exec) struct BulkInstruction {
    pub(in crate::exec) kind: Kind,
    pub(in crate::exec) inputs: Vec<Input>,
    /// The destination: the state of an arrival, the result of a wait, or an address.
    pub(in crate::exec) output: Option<(Offset, Width)>,
}

impl Input {
    /// The value of a lane.
    ///
    /// # Safety
    ///
    /// The register must be one of the file, of this width.
    pub(super) unsafe fn value(&self, file: RegisterFile, lane: usize) -> u64 {
        // SAFETY: by the contract.
        let value = unsafe { file.lane(self.register, self.width, lane) };
        let value = value.wrapping_add(self.offset as u64);
        if self.width == Width::Word { value & 0xffff_ffff } else { value }
    }

    /// The address in shared memory that an address is.
    pub(super) fn shared(&self, address: u64) -> Result<u64, FaultKind> {
        match locate(self.space, address) {
            (Space::Shared, address) => Ok(address),
            (space, _) => undefined(ProxyMisuse::NotShared { address, space }),
        }
    }
}

impl BulkInstruction {
    /// Writes the output of a lane, if there is one.
    ///
    /// # Safety
    ///
    /// The register must be one of the file.
    pub(super) unsafe fn put(&self, file: RegisterFile, lane: usize, value: u64) {
        if let Some((register, width)) = self.output {
            // SAFETY: by the contract.
            unsafe { file.set_lane(register, (width, lane), value) };
        }
    }
}
