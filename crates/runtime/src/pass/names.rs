//! Unique names of buffers.

use std::collections::HashMap;

/// The used names, each with the number of its next duplicate. Names are unique because messages
/// name buffers.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, u32>);

impl Names {
    /// Returns `name`, or `name` with the smallest number from 2 that makes it unique.
    pub(super) fn unique(&mut self, name: String) -> String {
        let Some(mut number) = self.0.get(&name).copied() else {
            self.0.insert(name.clone(), 2);
            return name;
        };
        let unique = loop {
            let numbered = format!("{name} ({number})");
            number += 1;
            if !self.0.contains_key(&numbered) {
                break numbered;
            }
        };
        // Names are never released, so skipped numbers stay used.
        self.0.insert(name, number);
        self.0.insert(unique.clone(), 2);
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_get_the_smallest_free_number() {
        let mut names = Names::default();
        let given = ["a", "a", "b", "a (3)", "a", "a (2)", "a", "a (3)"];
        let unique = given.map(|name| names.unique(name.to_owned()));
        assert_eq!(
            unique,
            ["a", "a (2)", "b", "a (3)", "a (4)", "a (2) (2)", "a (5)", "a (3) (2)"]
        );
    }

    #[test]
    fn many_duplicates_take_linear_time() {
        // Searching from 2 for each name would take 800 million comparisons.
        let mut names = Names::default();
        let last = (0..40_000).map(|_| names.unique("layer".to_owned())).last();
        assert_eq!(last.unwrap(), "layer (40000)");
    }
}
