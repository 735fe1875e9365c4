//! The state of a block, to detect that it repeats.

use std::hash::{Hash, Hasher};

use super::{BlockRunner, Line};

impl BlockRunner<'_> {
    /// Whether the block has changed global memory since the last call.
    pub(crate) fn take_has_changed_global(&self) -> bool {
        self.machine.memories.has_changed_global.replace(false)
    }

    /// Hashes registers, shared and local memory, barriers and the control state of each warp.
    pub(crate) fn hash_state(&self, hasher: &mut impl Hasher) {
        [&self.files, &self.shared, &self.local]
            .into_iter()
            .flatten()
            .for_each(|line: &Line| hasher.write(&line.bytes));
        self.warps.iter().for_each(|warp| warp.hash_state(hasher));
        self.barriers.hash(hasher);
        self.machine.memories.proxy.as_ref().map(|proxy| proxy.version()).hash(hasher);
    }
}
