//! Rows that a block holds in registers, so that memory is read once.
//!
//! Each thread has the same few vec4s of every row, one block's width apart, in the order of
//! [`for_each_vec4`](super::vec4::for_each_vec4). Rows consist of whole vec4s, and every operand is
//! 16-byte aligned: the launch guarantees both when it selects such an entry.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::bf16::pack_vec4;
use super::input::Input;
use super::output::Output;
use super::registers::{Registers, registers, set, values};
use super::vec4::F32x4;

/// The position of one vec4 in every row.
#[derive(Clone, Copy)]
pub(crate) struct RowVec4<'k> {
    k: Kernel<'k>,
    /// Index of the first float.
    pub(crate) first: Value<'k, u32>,
    /// Whether the position is inside the row.
    pub(crate) inside: Pred<'k>,
}

/// The `count` positions of this thread in rows of `width` floats.
pub(crate) fn row_vec4s<'k>(k: &Kernel<'k>, width: Value<'k, u32>, count: u32) -> Vec<RowVec4<'k>> {
    let row_vec4 = |number: u32| {
        let first = (k.tid_x() + k.ntid_x() * number) * 4;
        RowVec4 { k: *k, first, inside: first.lt(width) }
    };
    (0..count).map(row_vec4).collect()
}

impl<'k> RowVec4<'k> {
    /// Loads the vec4 of the row at `array`. The position must be inside the row.
    pub(crate) fn fetch(&self, array: Ptr<'k, f32>, registers: &Registers<'k>) {
        set(registers, array.load_vec4(self.first));
    }

    /// The vec4 of the row at `array`, 0 outside the row.
    pub(crate) fn load(&self, array: Ptr<'k, f32>) -> F32x4<'k> {
        let registers = registers(&self.k, 0.0);
        self.k.when(self.inside, || self.fetch(array, &registers));
        values(&registers)
    }

    /// Starts loading the bits of the vec4 of `from`, for [`Input::decode`]. The position must be
    /// inside the row.
    pub(crate) fn fetch_bits(&self, from: Input<'k>, bits: &Registers<'k, 4, u32>) {
        self.k.when(!from.f32.is_null(), || {
            set(bits, from.f32.load_vec4(self.first).map(Value::<f32>::bits));
        });
        self.k.when(!from.bf16.is_null(), || set(bits, from.bf16.load_vec2(self.first >> 1)));
    }

    /// The vec4 of `from`, 0 outside the row.
    pub(crate) fn read(&self, from: Input<'k>) -> F32x4<'k> {
        let bits = registers(&self.k, 0);
        self.k.when(self.inside, || self.fetch_bits(from, &bits));
        from.decode(values(&bits))
    }

    /// Stores the vec4 into the row at `array`, if it is inside.
    pub(crate) fn store(&self, array: Ptr<'k, f32>, values: F32x4<'k>) {
        self.k.when(self.inside, || array.store_vec4(self.first, values));
    }

    /// Stores the vec4 to each non-null array of `to`.
    pub(crate) fn write(&self, target: SmTarget, to: Output<'k>, values: F32x4<'k>) {
        self.k.when(self.inside & !to.f32.is_null(), || to.f32.store_vec4(self.first, values));
        self.k.when(self.inside & !to.bf16.is_null(), || {
            let words = pack_vec4(target, values);
            to.bf16.store_vec2(self.first >> 1, words);
        });
    }
}
