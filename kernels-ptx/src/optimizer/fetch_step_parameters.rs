//! The values of a step, taken from pinned memory of the host by the graph itself.
//!
//! ```text
//! ring    the count that the host reads, in a line of its own, then the slots
//! slot    the number of its values, counted from 1, then, 16 bytes on, the values
//!
//! where slot (taken mod slots) has the number taken + 1:
//!     block = its values,  taken = taken + 1,  ring[0] = taken
//! ```
//! Nothing else happens where the number is another: the host has written nothing new, and the
//! block keeps what it has. A launch therefore takes each value once, whoever launches it.
//!
//! The ring is memory of the host, which it has written before the launch. Its bytes are loaded as
//! volatile, past every cache, and all of them before the count tells the host that the slot may be
//! written again. The first values are asked for together with the number, so that there is one way
//! over the bus and back, and not two.
//!
//! Grid: one block, a thread for each 16 bytes and 256 at most. Deterministic: only moves.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

/// Words in front of the slots.
const HEAD: u32 = 16;
/// Words of a slot in front of its values.
const NUMBER: u32 = 4;

/// Loads that a thread has on their way at once where the values are many.
const IN_FLIGHT: u32 = 4;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build("take_controls", |k| {
        k.max_threads(256);
        let ring = k.pointer::<u32>("ring");
        let block = k.pointer::<u32>("block");
        let taken = k.pointer::<u32>("taken");
        let slot_words = k.param::<u32>("slot_words");
        let vec4s = k.param::<u32>("quads");
        let slots = k.param::<u32>("slots");

        let (thread, threads) = (k.tid_x(), k.ntid_x());
        let count = taken.load(0);
        let slot = ring.at((count & (slots - 1)) * slot_words).offset(HEAD.into());
        let values = slot.offset(NUMBER.into());
        let number = slot.load_volatile(0);
        let first = values.load_vec4_volatile(thread.min(vec4s - 1) * 4);
        let next = count + 1;
        k.return_if(number.ne(next));
        k.when(thread.lt(vec4s), || block.store_vec4(thread * 4, first));
        k.range(thread + threads, vec4s, threads * IN_FLIGHT, |vec4| {
            let places: [_; IN_FLIGHT as usize] =
                std::array::from_fn(|at| vec4 + threads * at as u32);
            let last = vec4s - 1;
            let loaded = places.map(|place| values.load_vec4_volatile(place.min(last) * 4));
            for (place, loaded) in places.into_iter().zip(loaded) {
                k.when(place.lt(vec4s), || block.store_vec4(place * 4, loaded));
            }
        });
        // All threads have their values, and have read the count.
        k.barrier();
        k.return_if(thread.ne(0));
        taken.store(0, next);
        k.fence_system();
        ring.store_volatile(0, next);
    })
}
