//! Special registers, warp shuffles and votes.

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::scalar::{Arg, Word};
use super::value::Value;
use crate::ast::{Immediate, Modifier, Opcode, Operand, SpecialRegister, Type};

macro_rules! specials {
    ($($(#[$doc:meta])* $method:ident = $special:ident;)*) => {
        impl<'k> Kernel<'k> { $(
            $(#[$doc])*
            pub fn $method(&self) -> Value<'k, u32> {
                self.special(SpecialRegister::$special)
            }
        )* }
    };
}

specials! {
    /// Index of the thread in its block, x.
    tid_x = TidX;
    /// Index of the thread in its block, y.
    tid_y = TidY;
    /// Index of the thread in its block, z.
    tid_z = TidZ;
    /// Threads per block, x.
    ntid_x = NtidX;
    /// Threads per block, y.
    ntid_y = NtidY;
    /// Threads per block, z.
    ntid_z = NtidZ;
    /// Index of the block in the grid, x.
    ctaid_x = CtaidX;
    /// Index of the block in the grid, y.
    ctaid_y = CtaidY;
    /// Index of the block in the grid, z.
    ctaid_z = CtaidZ;
    /// Blocks in the grid, x.
    nctaid_x = NctaidX;
    /// Blocks in the grid, y.
    nctaid_y = NctaidY;
    /// Blocks in the grid, z.
    nctaid_z = NctaidZ;
    /// Index of the thread in its warp.
    lane = LaneId;
}

/// Every lane of the warp.
const ALL_LANES: Operand = Operand::Immediate(Immediate::Integer(0xFFFF_FFFF));

/// The clamp operand of a shuffle over the entire warp.
const WHOLE_WARP: i64 = 31;

impl<'k> Kernel<'k> {
    /// Index of the warp in its block, for one-dimensional blocks.
    #[track_caller]
    pub fn warp(&self) -> Value<'k, u32> {
        self.tid_x() >> 5
    }

    /// Waits for every lane of the warp (`bar.warp.sync`). Their earlier writes to shared and
    /// global memory are then visible to each other.
    pub fn warp_barrier(&self) {
        let (modifiers, operands) = (&[Modifier::Warp, Modifier::Sync], vec![ALL_LANES]);
        self.emit(Emit { opcode: Opcode::Bar, modifiers, types: &[], operands });
    }

    /// The value of lane `lane ^ mask` (`shfl.sync.bfly`). Every lane of the warp must execute it.
    #[track_caller]
    pub fn shfl_bfly<T: Word>(&self, value: Value<'k, T>, mask: impl Arg<'k, u32>) -> Value<'k, T> {
        self.shuffle(Modifier::Bfly, value, mask.into_value(*self), WHOLE_WARP)
    }

    /// The value of lane `lane + delta`, or the lane's own if there is none (`shfl.sync.down`).
    /// Every lane of the warp must execute it.
    #[track_caller]
    pub fn shfl_down<T: Word>(
        &self,
        value: Value<'k, T>,
        delta: impl Arg<'k, u32>,
    ) -> Value<'k, T> {
        self.shuffle(Modifier::Down, value, delta.into_value(*self), WHOLE_WARP)
    }

    /// The value of lane `lane - delta`, or the lane's own if there is none (`shfl.sync.up`). Every
    /// lane of the warp must execute it.
    #[track_caller]
    pub fn shfl_up<T: Word>(&self, value: Value<'k, T>, delta: impl Arg<'k, u32>) -> Value<'k, T> {
        self.shuffle(Modifier::Up, value, delta.into_value(*self), 0)
    }

    /// The value of lane `lane` modulo 32 (`shfl.sync.idx`). Every lane of the warp must execute
    /// it.
    #[track_caller]
    pub fn shfl_idx<T: Word>(&self, value: Value<'k, T>, lane: impl Arg<'k, u32>) -> Value<'k, T> {
        self.shuffle(Modifier::Idx, value, lane.into_value(*self), WHOLE_WARP)
    }

    #[track_caller]
    fn shuffle<T: Word>(
        &self,
        mode: Modifier,
        value: Value<'k, T>,
        lane: Value<'k, u32>,
        clamp: i64,
    ) -> Value<'k, T> {
        let source = Operand::Register(value.register());
        let clamp = Operand::Immediate(Immediate::Integer(clamp));
        let operands = vec![source, lane.operand(), clamp, ALL_LANES];
        let (modifiers, types) = (&[Modifier::Sync, mode], &[Type::B32]);
        let emit = Emit { opcode: Opcode::Shfl, modifiers, types, operands };
        Value::from_register(*self, self.compute(T::TYPE, emit))
    }

    /// One bit per lane of the warp, set if `condition` is true (`vote.sync.ballot`). Every lane
    /// must execute it.
    #[track_caller]
    pub fn vote_ballot(&self, condition: Pred<'k>) -> Value<'k, u32> {
        let operands = vec![condition.operand(), ALL_LANES];
        let (modifiers, types) = (&[Modifier::Sync, Modifier::Ballot], &[Type::B32]);
        let emit = Emit { opcode: Opcode::Vote, modifiers, types, operands };
        Value::from_register(*self, self.compute(Type::U32, emit))
    }

    /// Whether `condition` is true in any lane of the warp (`vote.sync.any`). Every lane must
    /// execute it.
    #[track_caller]
    pub fn vote_any(&self, condition: Pred<'k>) -> Pred<'k> {
        self.vote(Modifier::Any, condition)
    }

    /// Whether `condition` is true in every lane of the warp (`vote.sync.all`). Every lane must
    /// execute it.
    #[track_caller]
    pub fn vote_all(&self, condition: Pred<'k>) -> Pred<'k> {
        self.vote(Modifier::All, condition)
    }

    #[track_caller]
    fn vote(&self, mode: Modifier, condition: Pred<'k>) -> Pred<'k> {
        let operands = vec![condition.operand(), ALL_LANES];
        let (modifiers, types) = (&[Modifier::Sync, mode], &[Type::Pred]);
        let emit = Emit { opcode: Opcode::Vote, modifiers, types, operands };
        Pred::new(*self, self.compute(Type::Pred, emit))
    }
}
