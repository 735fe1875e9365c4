//! Values by name in nested blocks.

use std::collections::HashMap;
use std::rc::Rc;

/// Values by name in nested blocks. A name shadows the same name of an outer block.
///
/// Lookup takes constant time at any depth.
pub(super) struct Nested<T> {
    /// The value of each name in the innermost block that has it, and the depth of this block.
    innermost: HashMap<Rc<str>, (usize, T)>,
    /// The names of each open block, with the values that they shadow.
    blocks: Vec<Vec<Hidden<T>>>,
}

/// A name and the value that it shadows.
type Hidden<T> = (Rc<str>, Option<(usize, T)>);

impl<T> Default for Nested<T> {
    fn default() -> Self {
        Self { innermost: HashMap::new(), blocks: Vec::new() }
    }
}

impl<T> Nested<T> {
    /// Opens a block.
    pub(super) fn open(&mut self) {
        self.blocks.push(Vec::new());
    }

    /// Closes the innermost block.
    pub(super) fn close(&mut self) {
        for (name, hidden) in self.blocks.pop().unwrap_or_default() {
            match hidden {
                Some(value) => self.innermost.insert(name, value),
                None => self.innermost.remove(&name),
            };
        }
    }

    /// Adds a value to the innermost block. Returns false if the block has `name` already.
    pub(super) fn insert(&mut self, name: &str, value: T) -> bool {
        if self.is_here(name) {
            return false;
        }
        let name: Rc<str> = name.into();
        let hidden = self.innermost.insert(Rc::clone(&name), (self.blocks.len(), value));
        if let Some(block) = self.blocks.last_mut() {
            block.push((name, hidden));
        }
        true
    }

    /// Whether the innermost block has `name`.
    pub(super) fn is_here(&self, name: &str) -> bool {
        self.innermost.get(name).is_some_and(|(depth, _)| *depth == self.blocks.len())
    }

    /// The value of `name` in the innermost block that has it.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.innermost.get(name).map(|(_, value)| value)
    }

    /// As [`Self::get`].
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.innermost.get_mut(name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_hides_names_until_it_is_closed() {
        let mut names = Nested::default();
        assert!(names.insert("a", 1));
        names.open();
        assert!(!names.is_here("a"));
        assert!(names.insert("a", 2) && names.insert("b", 3));
        assert!(!names.insert("a", 4));
        names.open();
        assert_eq!([names.get("a"), names.get("b")], [Some(&2), Some(&3)]);
        names.close();
        names.close();
        assert_eq!([names.get("a"), names.get("b")], [Some(&1), None]);
    }
}
