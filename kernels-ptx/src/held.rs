//! Rows that a block holds in registers, so that memory is read once.
//!
//! Each thread has the same few quads of every row, as far apart as the block has threads, which is
//! the order of [`block_quads`](crate::quad::block_quads). Rows are whole quads, and every operand
//! starts at a multiple of 16 bytes: the launch says so by the entry that it takes.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use crate::bf16::pack;
use crate::quad::{Floats, Written};

/// Four registers that change.
pub(crate) type Slots<'k> = [Var<'k, f32>; 4];

/// The place of one quad in every row.
#[derive(Clone, Copy)]
pub(crate) struct Place<'k> {
    k: Kernel<'k>,
    /// Index of the first float.
    first: Value<'k, u32>,
    /// Whether the row reaches it.
    pub(crate) inside: Pred<'k>,
}

/// The places that belong to this thread, `quads` of them, in rows of `width` floats.
pub(crate) fn places<'k>(k: &Kernel<'k>, width: Value<'k, u32>, quads: u32) -> Vec<Place<'k>> {
    let place = |number: u32| {
        let first = (k.tid_x() + k.ntid_x() * number) * 4;
        Place { k: *k, first, inside: first.lt(width) }
    };
    (0..quads).map(place).collect()
}

/// Four registers that are 0.
pub(crate) fn slots<'k>(k: &Kernel<'k>) -> Slots<'k> {
    [(); 4].map(|()| k.var(0.0))
}

/// What the registers hold now.
pub(crate) fn values<'k>(slots: &Slots<'k>) -> Floats<'k> {
    slots.map(Var::get)
}

impl<'k> Place<'k> {
    /// Loads the quad of the row at `array`, which must reach it.
    pub(crate) fn fetch(&self, array: Ptr<'k, f32>, slots: &Slots<'k>) {
        let loaded = array.load_vec4(self.first);
        slots.iter().zip(loaded).for_each(|(slot, value)| slot.set(value));
    }

    /// The quad of the row at `array`, 0 where that does not reach it.
    pub(crate) fn load(&self, array: Ptr<'k, f32>) -> Floats<'k> {
        let slots = slots(&self.k);
        self.k.when(self.inside, || self.fetch(array, &slots));
        values(&slots)
    }

    /// Stores the quad into the row at `array`, as far as that reaches.
    pub(crate) fn store(&self, array: Ptr<'k, f32>, values: Floats<'k>) {
        self.k.when(self.inside, || array.store_vec4(self.first, values));
    }

    /// Stores the quad where `to` is: as f32 and rounded to bf16.
    pub(crate) fn write(&self, target: SmTarget, to: Written<'k>, values: Floats<'k>) {
        self.k.when(self.inside & !to.f32.is_null(), || to.f32.store_vec4(self.first, values));
        self.k.when(self.inside & !to.bf16.is_null(), || {
            let words = [0, 2].map(|i| pack(target, [values[i], values[i + 1]]));
            to.bf16.store_vec2(self.first >> 1, words);
        });
    }
}
