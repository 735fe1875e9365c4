//! The objects that a graph and its execs keep alive.

use std::collections::BTreeMap;

use crate::owner::Owner;

/// Owners, without duplicates: an exec whose parameters are set repeatedly keeps the same few
/// functions and must not grow.
#[derive(Clone, Default)]
pub(super) struct Owners {
    /// By the address of the object, which is unique while it is kept.
    kept: BTreeMap<usize, Owner>,
}

impl Owners {
    pub(super) fn keep(&mut self, owner: Owner) {
        let address = std::sync::Arc::as_ptr(&owner).cast::<()>() as usize;
        self.kept.entry(address).or_insert(owner);
    }

    pub(super) fn extend(&mut self, others: &Self) {
        others.kept.values().for_each(|owner| self.keep(owner.clone()));
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_owner_is_kept_once_and_until_the_end() {
        let (one, other) = (Arc::new(1_u32), Arc::new(1_u32));
        let (mut owners, mut more) = (Owners::default(), Owners::default());
        for _ in 0..3 {
            owners.keep(one.clone());
            more.keep(one.clone());
            more.keep(other.clone());
        }
        owners.extend(&more);
        drop(more);
        assert_eq!(owners.len(), 2);
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (2, 2));
        drop(owners);
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1));
    }
}
