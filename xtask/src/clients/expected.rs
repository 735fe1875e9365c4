//! The tests that may fail, one a line: client, test, reason.

use anyhow::{Context, bail};

use crate::workspace::root;

/// The list, from the root of the workspace.
pub(super) const FILE: &str = "xtask/src/clients/expected.tsv";

/// A test that may fail.
#[derive(Debug)]
pub(super) struct Entry {
    client: String,
    test: String,
    /// Why it fails.
    pub(super) reason: String,
    /// Whether the test sometimes passes, for example because it compares times.
    pub(super) varies: bool,
}

/// The list.
pub(super) struct Expectations(Vec<Entry>);

impl Expectations {
    pub(super) fn load() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(root().join(FILE)).with_context(|| FILE.to_owned())?;
        Self::parse(&text).with_context(|| FILE.to_owned())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let &[client, test, reason] = &fields[..] else {
                bail!("line {}: three fields are expected, found {}", number + 1, fields.len());
            };
            if reason.is_empty() {
                bail!("line {}: the reason is empty", number + 1);
            }
            if entries.iter().any(|entry| entry.client == client && entry.test == test) {
                bail!("line {}: {test} is listed twice", number + 1);
            }
            let varies = reason.strip_prefix("varies: ");
            entries.push(Entry {
                client: client.to_owned(),
                test: test.to_owned(),
                reason: varies.unwrap_or(reason).to_owned(),
                varies: varies.is_some(),
            });
        }
        Ok(Self(entries))
    }

    /// The entry of a test.
    pub(super) fn find(&self, client: &str, test: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.client == client && entry.test == test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_client_test_and_reason() {
        let text = "# comment\na\tm.T.x\tno cubins\nb\tm.T.x\tvaries: compares times\n";
        let list = Expectations::parse(text).unwrap();
        let entry = list.find("a", "m.T.x").unwrap();
        assert_eq!((entry.reason.as_str(), entry.varies), ("no cubins", false));
        let entry = list.find("b", "m.T.x").unwrap();
        assert_eq!((entry.reason.as_str(), entry.varies), ("compares times", true));
        assert!(list.find("a", "m.T.y").is_none());
    }

    #[test]
    fn lines_without_a_reason_and_duplicates_are_refused() {
        for text in ["a\tx", "a\tx\t", "a\tx\tr\na\tx\tr"] {
            assert!(Expectations::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_is_well_formed() {
        assert!(Expectations::load().is_ok());
    }
}
