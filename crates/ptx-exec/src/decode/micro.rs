//! Instructions over virtual registers.

use crate::operation::Operation;
use crate::program::{Preset, Site, Width};

/// A PTX register, a temporary, or a preset, before register layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualRegister(pub(crate) u32);

/// Width and content of a virtual register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterInfo {
    /// Its width.
    pub(crate) width: Width,
    /// Its value before the warp starts; no instruction writes such a register.
    pub(crate) preset: Option<Preset>,
}

/// An instruction on virtual registers.
#[derive(Clone, Debug)]
pub(crate) struct Micro {
    /// The operation.
    pub(crate) operation: Operation<VirtualRegister>,
    /// The predicate that enables lanes, and whether it is negated.
    pub(crate) guard: Option<(VirtualRegister, bool)>,
    /// The registers that it writes.
    pub(crate) writes: Vec<VirtualRegister>,
    /// The registers that it reads.
    pub(crate) reads: Vec<VirtualRegister>,
    /// The statement that it comes from.
    pub(crate) site: Site,
}

impl Micro {
    /// An instruction and the registers of its operation.
    pub(crate) fn new(
        operation: Operation<VirtualRegister>,
        guard: Option<(VirtualRegister, bool)>,
        site: Site,
    ) -> Self {
        let (writes, reads) = operation.registers();
        Self { operation, guard, writes, reads, site }
    }

    /// Whether the next instruction may be another one than the following.
    pub(crate) fn ends_block(&self) -> bool {
        self.operation.branch_target().is_some() || self.operation.is_exit()
    }
}
