//! `rank_pattern` and `alpha_pattern` of a configuration.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::config::LoraModule;

/// The entries of an object in file order, since the first pattern that matches counts. Values that
/// are not objects have no entries.
#[derive(Debug, Default)]
pub(super) struct Ordered(pub(super) Vec<(String, Value)>);

/// Reads `rank_pattern` and `alpha_pattern` of a configuration.
pub(super) fn read(text: &[u8]) -> Result<[Ordered; 2], serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Patterns {
        #[serde(default)]
        rank_pattern: Ordered,
        #[serde(default)]
        alpha_pattern: Ordered,
    }
    let Patterns { rank_pattern, alpha_pattern } = serde_json::from_slice(text)?;
    Ok([rank_pattern, alpha_pattern])
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }

            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::default())
            }
        }

        deserializer.deserialize_any(Entries)
    }
}

/// Returns the names of modules with values other than `default`: a suffix such as `q_proj` if all
/// modules with this suffix have the same value, else each full name. No two names match the same
/// module, so their order does not matter.
pub(super) fn written<T: Copy + PartialEq>(
    values: &[(LoraModule, T)],
    default: T,
) -> Vec<(String, T)> {
    let mut names: Vec<(String, T)> = Vec::new();
    for (module, value) in values {
        let mut alike = values.iter().filter(|(other, _)| other.last() == module.last());
        let name = match alike.all(|(_, other)| other == value) {
            true => module.last().to_owned(),
            false => module.to_string(),
        };
        if *value != default && names.iter().all(|(known, _)| *known != name) {
            names.push((name, *value));
        }
    }
    names
}
