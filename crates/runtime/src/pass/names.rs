//! Names of buffers.

use std::collections::HashMap;

/// The names that are taken, each with the number that its next duplicate may have. Messages name
/// buffers, so that two buffers must not answer to the same name.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, u32>);

impl Names {
    /// `name` itself, or with the least number from 2 that makes it differ from all before.
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
        // Names are never given back, so the numbers passed here stay taken.
        self.0.insert(name, number);
        self.0.insert(unique.clone(), 2);
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_get_the_least_number_that_is_free() {
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
        // A search from 2 for each of them would make 800 million comparisons of names.
        let mut names = Names::default();
        let last = (0..40_000).map(|_| names.unique("layer".to_owned())).last();
        assert_eq!(last.unwrap(), "layer (40000)");
    }
}
