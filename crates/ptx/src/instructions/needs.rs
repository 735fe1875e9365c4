//! Requirements of an instruction: the PTX ISA version and the SM target.

use super::form::Form;
use crate::ast::{Instruction, Modifier, Operand, SpecialRegister};
use crate::target::{IsaVersion, Reach, SmTarget};

/// The base version: the table does not record older requirements.
pub(super) const BASE: IsaVersion = IsaVersion::new(6, 0);

/// The lowest PTX ISA version and the lowest SM target, as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The lowest PTX ISA version.
    pub isa: IsaVersion,
    /// The lowest SM target, as its number.
    pub sm: u32,
    /// Whether only that target has it, with the letter `a`.
    pub arch_specific: bool,
}

impl Requirements {
    const NOTHING: Self = Self::new(0, 0, 0);

    const fn new(major: u32, minor: u32, sm: u32) -> Self {
        Self { isa: IsaVersion::new(major, minor), sm, arch_specific: false }
    }

    fn and(self, other: Self) -> Self {
        let exact = self.arch_specific || other.arch_specific;
        Self { isa: self.isa.max(other.isa), sm: self.sm.max(other.sm), arch_specific: exact }
    }

    /// Whether a module of this version for this SM target meets the requirements.
    pub(crate) fn are_met(self, isa: IsaVersion, target: SmTarget) -> bool {
        let exactly = target.reach == Reach::ArchSpecific && target.number == self.sm;
        // The table does not record which version before `BASE` introduced a form.
        self.isa <= isa.max(BASE) && self.sm <= target.number && (exactly || !self.arch_specific)
    }

    /// The lowest, or only, target.
    pub(crate) fn target(self) -> SmTarget {
        let reach = if self.arch_specific { Reach::ArchSpecific } else { Reach::Forward };
        SmTarget { number: self.sm, reach }
    }
}

/// The requirements of an instruction of this form: of the form itself, and of modifiers and
/// registers that are newer than the form.
pub(crate) fn needs(form: &Form, instruction: &Instruction) -> Requirements {
    let mut all = form.needs();
    for modifier in instruction.modifiers.iter() {
        all = all.and(modifier.needs());
    }
    for operand in &instruction.operands {
        if let Operand::Special(special) = operand {
            all = all.and(special.needs());
        }
    }
    all
}

impl Modifier {
    /// The requirements of the word in every instruction, if above PTX ISA 6.0.
    pub const fn needs(self) -> Requirements {
        match self {
            Self::SharedCta => Requirements::new(7, 8, 30),
            Self::Cluster | Self::SharedCluster => Requirements::new(7, 8, 90),
            Self::ParamEntry | Self::ParamFunc => Requirements::new(8, 3, 0),
            Self::Mmio => Requirements::new(8, 3, 70),
            Self::L1EvictNormal
            | Self::L1EvictUnchanged
            | Self::L1EvictFirst
            | Self::L1EvictLast
            | Self::L1NoAllocate => Requirements::new(7, 4, 70),
            Self::L2Bytes64 | Self::L2Bytes128 => Requirements::new(7, 4, 75),
            Self::L2Bytes256
            | Self::L2CacheHint
            | Self::L2EvictNormal
            | Self::L2EvictFirst
            | Self::L2EvictLast => Requirements::new(7, 4, 80),
            _ => Requirements::NOTHING,
        }
    }
}

impl SpecialRegister {
    /// The requirements of the register, if above PTX ISA 6.0.
    pub const fn needs(self) -> Requirements {
        match self {
            Self::AggregateSharedSize => Requirements::new(8, 1, 90),
            Self::ClusterIdX
            | Self::ClusterIdY
            | Self::ClusterIdZ
            | Self::NClusterIdX
            | Self::NClusterIdY
            | Self::NClusterIdZ
            | Self::ClusterCtaidX
            | Self::ClusterCtaidY
            | Self::ClusterCtaidZ
            | Self::ClusterNctaidX
            | Self::ClusterNctaidY
            | Self::ClusterNctaidZ
            | Self::ClusterCtarank
            | Self::ClusterNctarank => Requirements::new(7, 8, 90),
            _ => Requirements::NOTHING,
        }
    }
}
