//! Decoded operations.
//!
//! Decoding turns a PTX instruction into one or a few operations. An operation has its registers
//! and modifiers as typed fields, so the interpreter makes no decision that decoding can make. `R`
//! is the type of a register: a virtual register while decoding, and its offset in the register
//! file once [`super::layout`] has placed it.
//!
//! Each group has its own file with a table of its operations and their semantics, one row each.

mod control;
mod convert;
mod float;
mod function;
mod integer;
mod memory;
mod predicate;
mod tensor;
mod warp;

pub(super) use control::{Control, Next};
pub(super) use convert::Convert;
pub(super) use float::Float;
pub(super) use function::Function;
pub(super) use integer::Integer;
pub(super) use memory::Memory;
pub(super) use predicate::{Comparison, Predicate};
pub(super) use tensor::{Bulk, Tensor};
pub(super) use warp::{Outcome, ShuffleMode, WarpWide};

use super::registers::Offset;

/// Declares a group of operations. A row is `Name(written, …) <- (read, …) { immediate: Type, … }`.
macro_rules! operations {
    (
        $(#[$meta:meta])*
        enum $group:ident {
            $(
                $(#[$doc:meta])*
                $name:ident($($d:ident),*) <- ($($a:ident),*) $({ $($field:ident: $ty:ty),+ })?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $group<R> {
            $($(#[$doc])* $name { $($d: R,)* $($a: R,)* $($($field: $ty,)+)? },)*
        }

        impl<R: Copy> $group<R> {
            /// The registers that the operation writes, and the registers that it reads.
            pub(crate) fn registers(&self) -> (Vec<R>, Vec<R>) {
                match *self {
                    $(Self::$name { $($d,)* $($a,)* .. } => (vec![$($d),*], vec![$($a),*]),)*
                }
            }

            /// The same operation on other registers.
            pub(crate) fn map<T>(self, f: impl Fn(R) -> T) -> $group<T> {
                let _ = &f;
                match self {
                    $(Self::$name { $($d,)* $($a,)* $($($field,)+)? } => $group::$name {
                        $($d: f($d),)* $($a: f($a),)* $($($field,)+)?
                    },)*
                }
            }
        }

        impl<R> From<$group<R>> for super::Operation<R> {
            fn from(operation: $group<R>) -> Self {
                Self::$group(operation)
            }
        }
    };
}
use operations;

/// Declares a group whose operations compute each lane from the same lane of their operands. A row
/// is `Name = |operand: type, …| result`; the result goes to the register `d`.
macro_rules! lane_operations {
    (
        $(#[$meta:meta])*
        enum $group:ident {
            $($(#[$doc:meta])* $name:ident = |$($a:ident: $ty:ty),+| $value:expr;)*
        }
    ) => {
        $crate::operation::operations! {
            $(#[$meta])*
            enum $group {
                $($(#[$doc])* $name(d) <- ($($a),+);)*
            }
        }

        impl $group<Offset> {
            /// Executes the operation in the active lanes.
            ///
            /// # Safety
            ///
            /// The operation must come from decoding for the register file of `lanes`.
            #[inline(always)]
            pub(crate) unsafe fn execute(&self, lanes: ActiveLanes) {
                // SAFETY: decoding made the registers as wide as the types of each row.
                unsafe {
                    match *self {
                        $(Self::$name { d, $($a),+ } => {
                            lane_operations!(@map lanes d [$($a: $ty),+] $value)
                        })*
                    }
                }
            }
        }
    };
    (@map $lanes:ident $d:ident [$a:ident: $x:ty] $value:expr) => {
        $lanes.map1($d, $a, |$a: $x| $value)
    };
    (@map $lanes:ident $d:ident [$a:ident: $x:ty, $b:ident: $y:ty] $value:expr) => {
        $lanes.map2($d, $a, $b, |$a: $x, $b: $y| $value)
    };
    (
        @map $lanes:ident $d:ident
        [$a:ident: $x:ty, $b:ident: $y:ty, $c:ident: $z:ty] $value:expr
    ) => {
        $lanes.map3($d, $a, $b, $c, |$a: $x, $b: $y, $c: $z| $value)
    };
}
use lane_operations;

/// A decoded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<R> {
    /// Integer arithmetic and logic.
    Integer(Integer<R>),
    /// `f32` and `f64` arithmetic, rounded to nearest.
    Float(Float<R>),
    /// Moves and conversions between common types.
    Convert(Convert<R>),
    /// Comparisons, logic on predicates, and selection by them.
    Predicate(Predicate<R>),
    /// Loads, stores, atomics and asynchronous copies.
    Memory(Memory<R>),
    /// Branches, barriers, exits and clocks.
    Control(Control<R>),
    /// Operations between the lanes of a warp.
    WarpWide(WarpWide<R>),
    /// Matrix instructions of a warp or warpgroup.
    Tensor(Tensor),
    /// mbarriers and bulk copies.
    Bulk(Bulk),
    /// Everything else, one lane at a time.
    Function(Function<R>),
}

impl<R: Copy> Operation<R> {
    /// The registers that the operation writes, and the registers that it reads. The registers of
    /// matrix instructions are in tables of the program.
    pub(super) fn registers(&self) -> (Vec<R>, Vec<R>) {
        match self {
            Self::Integer(operation) => operation.registers(),
            Self::Float(operation) => operation.registers(),
            Self::Convert(operation) => operation.registers(),
            Self::Predicate(operation) => operation.registers(),
            Self::Memory(operation) => operation.registers(),
            Self::Control(operation) => operation.registers(),
            Self::WarpWide(operation) => operation.registers(),
            Self::Function(operation) => operation.registers(),
            Self::Tensor(_) | Self::Bulk(_) => (Vec::new(), Vec::new()),
        }
    }

    /// The same operation on other registers.
    pub(super) fn map<T>(self, f: impl Fn(R) -> T) -> Operation<T> {
        match self {
            Self::Integer(operation) => operation.map(f).into(),
            Self::Float(operation) => operation.map(f).into(),
            Self::Convert(operation) => operation.map(f).into(),
            Self::Predicate(operation) => operation.map(f).into(),
            Self::Memory(operation) => operation.map(f).into(),
            Self::Control(operation) => operation.map(f).into(),
            Self::WarpWide(operation) => operation.map(f).into(),
            Self::Function(operation) => operation.map(f).into(),
            Self::Tensor(operation) => operation.into(),
            Self::Bulk(operation) => Operation::Bulk(operation),
        }
    }

    /// The target, if the operation is a branch.
    pub(super) fn branch_target(&self) -> Option<u32> {
        match self {
            Self::Control(Control::Branch { target }) => Some(*target),
            _ => None,
        }
    }

    /// Whether the operation is an exit or a return.
    pub(super) fn is_exit(&self) -> bool {
        matches!(self, Self::Control(Control::Exit {} | Control::Return {}))
    }
}

/// One instruction as the interpreter runs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    /// The predicate that enables lanes; all ones for instructions without a guard.
    pub(super) guard: Offset,
    /// All ones if lanes with a false guard execute the instruction.
    pub(super) guard_inversion: u32,
    /// The operation.
    pub(super) operation: Operation<Offset>,
}
