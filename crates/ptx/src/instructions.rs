//! The instruction table.
//!
//! Every opcode is one row of `table.rs`: its name, its semantics, and its forms, which are in one
//! file of `table/` for each area. The opcodes, the words that the parser accepts, the check that
//! parser and builder share ([`validate`](crate::validate())), and the versions that a module needs
//! are all derived from it.
//!
//! `CONTRIBUTING.md` of the repository lists the steps to add an instruction.

mod check;
mod form;
mod needs;
mod operands;
mod sets;
mod table;

pub use form::{Form, ModifierChoice, Shape, Ty};
pub use needs::Requirements;
pub use table::Opcode;

pub(crate) use check::{Names, check};
pub(crate) use needs::needs;

use crate::ast::Modifier;

impl Opcode {
    /// Whether the first operand is a destination. All forms agree, except for `wmma` and
    /// `mbarrier`; see [`crate::ast::Instruction::has_destination`]. `wgmma`
    /// also reads its destination; see [`crate::ast::Instruction::visit_registers`].
    pub const fn has_destination(self) -> bool {
        match self.forms()[0].operands {
            [first, ..] => first.is_written(),
            [] => false,
        }
    }

    /// Whether `modifier` is part of the name of the instruction, as in `mul.lo`: it must come
    /// before the others, whereas `ptxas` accepts the others in any order.
    pub const fn binds(self, modifier: Modifier) -> bool {
        match self {
            Self::Mul | Self::Mad | Self::Madc | Self::Mul24 | Self::Mad24 | Self::Dp2a => {
                matches!(modifier, Modifier::Lo | Modifier::Hi | Modifier::Wide)
            }
            Self::Shf => matches!(modifier, Modifier::L | Modifier::R),
            Self::Cvta => matches!(modifier, Modifier::To),
            Self::Div => matches!(modifier, Modifier::Full),
            Self::Bar => matches!(modifier, Modifier::Cta | Modifier::Warp),
            Self::Barrier => {
                use Modifier::{Arrive, Cluster, Cta, Wait};
                matches!(modifier, Cta | Cluster | Arrive | Wait)
            }
            Self::Cp => {
                use Modifier::{
                    Async, AsyncBulk, AsyncBulkTensor, BulkCommitGroup, BulkPrefetch,
                    BulkWaitGroup, ReduceAsyncBulk, ReduceAsyncBulkTensor,
                };
                matches!(
                    modifier,
                    Async
                        | AsyncBulk
                        | AsyncBulkTensor
                        | BulkCommitGroup
                        | BulkPrefetch
                        | BulkWaitGroup
                        | ReduceAsyncBulk
                        | ReduceAsyncBulkTensor
                )
            }
            Self::Mbarrier => {
                use Modifier::{
                    Arrive, ArriveExpectTx, ArriveNoComplete, CompleteTx, ExpectTx, Init, Inval,
                    TestWait, TestWaitParity, TryWait, TryWaitParity,
                };
                matches!(
                    modifier,
                    Arrive
                        | ArriveExpectTx
                        | ArriveNoComplete
                        | CompleteTx
                        | ExpectTx
                        | Init
                        | Inval
                        | TestWait
                        | TestWaitParity
                        | TryWait
                        | TryWaitParity
                )
            }
            Self::Setmaxnreg => matches!(modifier, Modifier::IncSync | Modifier::DecSync),
            Self::Wmma => {
                use Modifier::{LoadA, LoadB, LoadC, Mma, StoreD};
                matches!(modifier, LoadA | LoadB | LoadC | StoreD | Mma)
            }
            Self::Wgmma => {
                use Modifier::{CommitGroup, Fence, MmaAsync, WaitGroup};
                matches!(modifier, Fence | CommitGroup | WaitGroup | MmaAsync)
            }
            Self::Brx => matches!(modifier, Modifier::Idx),
            _ => false,
        }
    }
}
