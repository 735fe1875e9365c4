//! Fetches the parameters of a step from a ring in pinned host memory, as the root of the graph.
//!
//! ```text
//! ring    taken count, read by the host, in a 64-byte header; then the slots
//! slot    sequence number, counted from 1; then, 16 bytes on, the parameters
//!
//! if the sequence number of slot (taken mod slots) is taken + 1:
//!     block = its parameters,  taken = taken + 1,  ring[0] = taken
//! ```
//!
//! Any other sequence number means that the host has written no new parameters; the block then
//! keeps the previous ones. So every set of parameters is fetched exactly once.
//!
//! The host writes the ring before it launches the graph. The kernel uses volatile loads, which
//! bypass the caches, and completes all of them before it publishes the count that frees the slot.
//! The first parameters are loaded together with the sequence number, which saves one round trip
//! over the bus.
//!
//! Grid: one block with one thread per 16 bytes, at most 256. Deterministic: the kernel only
//! copies.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use super::ring::{HEADER_WORDS, SLOT_HEADER_WORDS};
use super::{FETCH_STEP_PARAMETERS, FetchStepParametersParameters, MAX_THREADS};
use crate::Declarations;
use crate::pdl::insert_waits;

/// Loads of a thread in flight, if a slot has more vec4s than the block has threads.
const LOADS_IN_FLIGHT: u32 = 4;

/// Builds the image of [`FETCH_STEP_PARAMETERS`].
pub fn module(target: SmTarget) -> Module {
    insert_waits(ModuleBuilder::new(target).entry(entry()).build())
}

fn entry() -> Entry {
    Kernel::build(FETCH_STEP_PARAMETERS.entry(), |k| {
        k.max_threads(MAX_THREADS);
        let FetchStepParametersParameters { ring, block, taken, slot_words, vec4s, slots } =
            FetchStepParametersParameters::declare(&mut Declarations(*k));

        let (thread, threads) = (k.tid_x(), k.ntid_x());
        let count = taken.load(0);
        let slot = ring.at((count & (slots - 1)) * slot_words).offset(HEADER_WORDS.into());
        let parameters = slot.offset(SLOT_HEADER_WORDS.into());
        let sequence = slot.load_volatile(0);
        let first = parameters.load_vec4_volatile(thread.min(vec4s - 1) * 4);
        let next = count + 1;
        k.return_if(sequence.ne(next));
        k.when(thread.lt(vec4s), || block.store_vec4(thread * 4, first));
        k.range(thread + threads, vec4s, threads * LOADS_IN_FLIGHT, |vec4| {
            let indices: [_; LOADS_IN_FLIGHT as usize] =
                std::array::from_fn(|at| vec4 + threads * at as u32);
            let last = vec4s - 1;
            let loaded = indices.map(|index| parameters.load_vec4_volatile(index.min(last) * 4));
            for (index, loaded) in indices.into_iter().zip(loaded) {
                k.when(index.lt(vec4s), || block.store_vec4(index * 4, loaded));
            }
        });
        // All threads have loaded their parameters and the count.
        k.barrier();
        k.return_if(thread.ne(0));
        taken.store(0, next);
        k.membar_sys();
        ring.store_volatile(0, next);
    })
}
