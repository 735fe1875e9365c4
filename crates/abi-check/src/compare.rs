//! Comparison of two lists of facts.

use std::fmt;

use crate::facts::Facts;

/// The facts that a C program can confirm.
const C_SAYS: [&str; 5] = ["size of ", "alignment of ", "offset of ", "value of ", "signature of "];

/// An item on which one of our crates and a source disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The source, such as `cuda.h 13.0 by bindgen`.
    pub source: String,
    /// The item, such as `offset of CUDA_MEMCPY3D.srcHost`.
    pub item: String,
    /// The value in our crate.
    pub ours: Option<String>,
    /// The value in the source.
    pub theirs: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let Self { source, item, ours, theirs } = self;
        write!(f, "{item}: our crate says {}, {source} says {}", text(ours), text(theirs))
    }
}

/// The facts of our crate that a source must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All.
    All,
    /// All that a C program can say.
    C,
    /// Any subset.
    Subset,
}

/// Compares facts. Facts that only the source has are also differences: they are fields that our
/// crate lacks.
pub fn compare(source: &str, extent: Extent, ours: &Facts, theirs: &Facts) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut differ = |item: &String, ours: Option<&String>, theirs: Option<&String>| {
        let (ours, theirs) = (ours.cloned(), theirs.cloned());
        let (source, item) = (source.to_owned(), item.clone());
        differences.push(Difference { source, item, ours, theirs });
    };
    for (item, value) in ours {
        let asked = match extent {
            Extent::All => true,
            Extent::C => C_SAYS.iter().any(|start| item.starts_with(start)),
            Extent::Subset => theirs.contains_key(item),
        };
        if asked && theirs.get(item) != Some(value) {
            differ(item, Some(value), theirs.get(item));
        }
    }
    for (item, value) in theirs.iter().filter(|(item, _)| !ours.contains_key(*item)) {
        differ(item, None, Some(value));
    }
    differences
}
