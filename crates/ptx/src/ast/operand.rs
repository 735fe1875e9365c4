//! Operands of instructions.

use crate::words::words;

/// A register of an entry: an index into its registers, in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterId(pub u32);

/// A label of an entry: an index into [`super::Entry::labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(pub u32);

/// A named memory location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A parameter: an index into [`super::Entry::parameters`].
    Parameter(u32),
    /// A variable of the entry: an index into [`super::Entry::variables`].
    Local(u32),
    /// A variable of the module: an index into [`super::Module::variables`].
    Module(u32),
    /// A result of a function: an index into [`super::Entry::results`].
    Result(u32),
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// An integer, for any integer type. A 64-bit value above `i64::MAX` wraps around.
    Integer(i64),
    /// The bits of a 32-bit float.
    F32(u32),
    /// The bits of a 64-bit float.
    F64(u64),
}

/// The base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressBase {
    /// The value of a register.
    Register(RegisterId),
    /// The address of a symbol.
    Symbol(Symbol),
    /// Zero: the offset is the address.
    Absolute,
}

/// A memory operand, `[base+offset]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The base.
    pub base: AddressBase,
    /// Bytes added to it.
    pub offset: i64,
}

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Register(RegisterId),
    /// The negation of a predicate register, `!%p1`.
    NotPredicate(RegisterId),
    /// Two destinations, `%p1|%p2`. One may be discarded, `_|%p2`.
    Pair(Option<RegisterId>, Option<RegisterId>),
    /// A special register, which is read-only.
    Special(SpecialRegister),
    /// A constant.
    Immediate(Immediate),
    /// The address of a variable as a value, `mov.u32 %r1, tile;`, with an offset in bytes.
    Symbol(Symbol, i64),
    /// A memory operand.
    Address(Address),
    /// A box of a tensor, `[map, {x, y}]`: the register with the address of its tensor map, and the
    /// coordinates of its first element, innermost dimension first.
    TensorCoordinates(RegisterId, Vec<Operand>),
    /// A vector of registers or constants, `{%f1, %f2}`.
    Vector(Vec<Operand>),
    /// The target of a branch.
    Label(LabelId),
    /// A branch table: an index into [`super::Entry::tables`].
    Targets(u32),
    /// The prototype of an indirect call: an index into [`super::Entry::prototypes`].
    Prototype(u32),
    /// A called function, or the address of a function as a value: an index into
    /// [`super::Module::functions`].
    Function(u32),
    /// Arguments or results of a call, `(a, b)`.
    List(Vec<Operand>),
    /// A discarded result, `_`.
    Sink,
}

impl Operand {
    /// Calls `visit` with every register of the operand, read or written.
    pub fn visit_registers(&self, visit: &mut dyn FnMut(RegisterId)) {
        match self {
            Self::Register(register) | Self::NotPredicate(register) => visit(*register),
            Self::Pair(first, second) => [*first, *second].into_iter().flatten().for_each(visit),
            Self::Address(Address { base: AddressBase::Register(register), .. }) => {
                visit(*register);
            }
            Self::Vector(operands) | Self::List(operands) => {
                operands.iter().for_each(|operand| operand.visit_registers(visit));
            }
            Self::TensorCoordinates(map, coordinates) => {
                visit(*map);
                coordinates.iter().for_each(|operand| operand.visit_registers(visit));
            }
            _ => {}
        }
    }

    /// As [`Self::visit_registers`], with mutable registers.
    pub fn visit_registers_mut(&mut self, visit: &mut dyn FnMut(&mut RegisterId)) {
        match self {
            Self::Register(register) | Self::NotPredicate(register) => visit(register),
            Self::Pair(first, second) => [first, second].into_iter().flatten().for_each(visit),
            Self::Address(Address { base: AddressBase::Register(register), .. }) => {
                visit(register);
            }
            Self::Vector(operands) | Self::List(operands) => {
                operands.iter_mut().for_each(|operand| operand.visit_registers_mut(visit));
            }
            Self::TensorCoordinates(map, coordinates) => {
                visit(map);
                coordinates.iter_mut().for_each(|operand| operand.visit_registers_mut(visit));
            }
            _ => {}
        }
    }
}

words! {
    /// A special register.
    pub enum SpecialRegister {
        TidX = "%tid.x",
        TidY = "%tid.y",
        TidZ = "%tid.z",
        NtidX = "%ntid.x",
        NtidY = "%ntid.y",
        NtidZ = "%ntid.z",
        CtaidX = "%ctaid.x",
        CtaidY = "%ctaid.y",
        CtaidZ = "%ctaid.z",
        NctaidX = "%nctaid.x",
        NctaidY = "%nctaid.y",
        NctaidZ = "%nctaid.z",
        LaneId = "%laneid",
        WarpId = "%warpid",
        NWarpId = "%nwarpid",
        SmId = "%smid",
        NSmId = "%nsmid",
        GridId = "%gridid",
        LaneMaskEq = "%lanemask_eq",
        LaneMaskLe = "%lanemask_le",
        LaneMaskLt = "%lanemask_lt",
        LaneMaskGe = "%lanemask_ge",
        LaneMaskGt = "%lanemask_gt",
        DynamicSharedSize = "%dynamic_smem_size",
        TotalSharedSize = "%total_smem_size",
        AggregateSharedSize = "%aggr_smem_size",
        Clock = "%clock",
        ClockHigh = "%clock_hi",
        Clock64 = "%clock64",
        GlobalTimer = "%globaltimer",
        GlobalTimerLow = "%globaltimer_lo",
        GlobalTimerHigh = "%globaltimer_hi",
        ClusterIdX = "%clusterid.x",
        ClusterIdY = "%clusterid.y",
        ClusterIdZ = "%clusterid.z",
        NClusterIdX = "%nclusterid.x",
        NClusterIdY = "%nclusterid.y",
        NClusterIdZ = "%nclusterid.z",
        ClusterCtaidX = "%cluster_ctaid.x",
        ClusterCtaidY = "%cluster_ctaid.y",
        ClusterCtaidZ = "%cluster_ctaid.z",
        ClusterNctaidX = "%cluster_nctaid.x",
        ClusterNctaidY = "%cluster_nctaid.y",
        ClusterNctaidZ = "%cluster_nctaid.z",
        ClusterCtarank = "%cluster_ctarank",
        ClusterNctarank = "%cluster_nctarank",
        EnvReg0 = "%envreg0",
        EnvReg1 = "%envreg1",
        EnvReg2 = "%envreg2",
        EnvReg3 = "%envreg3",
        EnvReg4 = "%envreg4",
        EnvReg5 = "%envreg5",
        EnvReg6 = "%envreg6",
        EnvReg7 = "%envreg7",
        EnvReg8 = "%envreg8",
        EnvReg9 = "%envreg9",
        EnvReg10 = "%envreg10",
        EnvReg11 = "%envreg11",
        EnvReg12 = "%envreg12",
        EnvReg13 = "%envreg13",
        EnvReg14 = "%envreg14",
        EnvReg15 = "%envreg15",
        EnvReg16 = "%envreg16",
        EnvReg17 = "%envreg17",
        EnvReg18 = "%envreg18",
        EnvReg19 = "%envreg19",
        EnvReg20 = "%envreg20",
        EnvReg21 = "%envreg21",
        EnvReg22 = "%envreg22",
        EnvReg23 = "%envreg23",
        EnvReg24 = "%envreg24",
        EnvReg25 = "%envreg25",
        EnvReg26 = "%envreg26",
        EnvReg27 = "%envreg27",
        EnvReg28 = "%envreg28",
        EnvReg29 = "%envreg29",
        EnvReg30 = "%envreg30",
        EnvReg31 = "%envreg31",
    }
}

impl SpecialRegister {
    /// Whether this is an index or a size of a block, a grid and so on, which `mov` can also read
    /// as 16 bits.
    pub const fn is_extent(self) -> bool {
        matches!(
            self,
            Self::TidX
                | Self::TidY
                | Self::TidZ
                | Self::NtidX
                | Self::NtidY
                | Self::NtidZ
                | Self::CtaidX
                | Self::CtaidY
                | Self::CtaidZ
                | Self::NctaidX
                | Self::NctaidY
                | Self::NctaidZ
        )
    }

    /// The type of the register.
    pub const fn ty(self) -> super::Type {
        match self {
            Self::Clock64 | Self::GlobalTimer | Self::GridId => super::Type::U64,
            _ => super::Type::U32,
        }
    }
}
