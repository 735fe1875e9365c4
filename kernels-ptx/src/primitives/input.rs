//! Operands that are f32 or bf16, as the launch decides.

use retrograph_kernel_abi::Bf16;
use retrograph_ptx::build::{Pred, Ptr, Value};

use super::bf16::unpack;
use super::output::Output;
use super::vec4::F32x4;

/// An optional operand: an f32 array or a bf16 array. The other one is null; both are null without
/// an operand.
#[derive(Clone, Copy)]
pub(crate) struct Input<'k> {
    pub(crate) f32: Ptr<'k, f32>,
    pub(crate) bf16: Ptr<'k, u32>,
}

impl<'k> Input<'k> {
    /// The operand with an array in f32 or one in bf16.
    pub(crate) fn new(f32: Ptr<'k, f32>, bf16: Ptr<'k, Bf16>) -> Self {
        Self { f32, bf16: bf16.reinterpret() }
    }

    /// The operand in f32 only.
    pub(crate) fn f32(f32: Ptr<'k, f32>) -> Self {
        let Output { f32, bf16 } = Output::f32(f32);
        Self { f32, bf16 }
    }

    /// The array from element `elements` on; null stays null.
    pub(crate) fn at(self, elements: Value<'k, u64>) -> Self {
        let Output { f32, bf16 } = Output { f32: self.f32, bf16: self.bf16 }.at(elements);
        Self { f32, bf16 }
    }

    /// Whether there is an operand.
    pub(crate) fn is_given(self) -> Pred<'k> {
        (self.f32.address() | self.bf16.address()).ne(0)
    }

    /// Both arrays, for [`aligned`](super::vec4::aligned).
    pub(crate) fn arrays(self) -> [Ptr<'k, f32>; 2] {
        [self.f32, self.bf16.reinterpret()]
    }

    /// The vec4 from its loaded bits: four words of f32, or two words of bf16 and two unused ones.
    pub(crate) fn decode(self, [a, b, c, d]: [Value<'k, u32>; 4]) -> F32x4<'k> {
        let ([low, high], words) = ([a, b].map(unpack), [a, b, c, d]);
        let halves = [low[0], low[1], high[0], high[1]];
        let is_f32 = !self.f32.is_null();
        [0, 1, 2, 3].map(|at| is_f32.select(Value::<f32>::from_bits(words[at]), halves[at]))
    }
}
