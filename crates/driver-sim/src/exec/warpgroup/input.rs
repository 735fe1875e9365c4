//! Elements of the matrices of `wgmma`.

use crate::exec::rounding::Format;

/// The type of both matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum InputType {
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// tf32.
    Tf32,
}

impl InputType {
    /// The k of one product.
    pub(super) fn steps(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 16,
            Self::Tf32 => 8,
        }
    }

    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        32 / self.steps()
    }

    /// The element of 16 bits in the low bits.
    pub(super) fn of_half(self, bits: u16) -> f32 {
        match self {
            Self::F16 => Format::F16.widen(bits.into()) as f32,
            Self::Bf16 | Self::Tf32 => f32::from_bits(u32::from(bits) << 16),
        }
    }

    /// The elements of a that a register of a lane holds: the row among 16, the step, the value.
    pub(super) fn elements_of(
        self,
        (index, lane): (usize, usize),
        bits: u32,
    ) -> Vec<(usize, usize, f32)> {
        let (row, member) = (lane / 4 + index % 2 * 8, lane % 4);
        match self {
            Self::Tf32 => vec![(row, member + index / 2 * 4, of_tf32(bits))],
            Self::Bf16 | Self::F16 => {
                let step = 2 * member + index / 2 * 8;
                let [low, high] = [bits as u16, (bits >> 16) as u16].map(|half| self.of_half(half));
                vec![(row, step, low), (row, step + 1, high)]
            }
        }
    }
}

/// A tf32 value; its low bits are ignored.
pub(super) fn of_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}
