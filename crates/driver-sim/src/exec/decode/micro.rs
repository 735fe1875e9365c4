//! Instructions over virtual registers.

use crate::exec::operation::Operation;
use crate::exec::program::{Preset, Site, Width};

/// A PTX register, a temporary, or a preset, before register layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::exec) struct VirtualRegister(pub(in crate::exec) u32);

/// Width and content of a virtual register.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct RegisterInfo {
    /// Its width.
    pub(in crate::exec) width: Width,
    /// Its value before the warp starts; no instruction writes such a register.
    pub(in crate::exec) preset: Option<Preset>,
}

/// An instruction on virtual registers.
#[derive(Clone, Debug)]
pub(in crate::exec) struct Micro {
    /// The operation.
    pub(in crate::exec) operation: Operation<VirtualRegister>,
    /// The predicate that enables lanes, and whether it is negated.
    pub(in crate::exec) guard: Option<(VirtualRegister, bool)>,
    /// The registers that it writes.
    pub(in crate::exec) writes: Vec<VirtualRegister>,
    /// The registers that it reads.
    pub(in crate::exec) reads: Vec<VirtualRegister>,
    /// The statement that it comes from.
    pub(in crate::exec) site: Site,
}

impl Micro {
    /// An instruction and the registers of its operation.
    pub(in crate::exec) fn new(
        operation: Operation<VirtualRegister>,
        guard: Option<(VirtualRegister, bool)>,
        site: Site,
    ) -> Self {
        let (writes, reads) = operation.registers();
        Self { operation, guard, writes, reads, site }
    }

    /// Whether the next instruction may be another one than the following.
    pub(in crate::exec) fn ends_block(&self) -> bool {
        self.operation.branch_target().is_some() || self.operation.is_exit()
    }
}
