//! Allowed differences between the parser and `ptxas`, with reasons.

/// The table: one `pattern => reason` per line. A pattern is a prefix of a kind; after `*` follows
/// text that the rest must contain.
const TABLE: &str = include_str!("known.txt");

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) pattern: &'static str,
    pub(crate) reason: &'static str,
}

impl Known {
    fn matches(&self, kind: &str) -> bool {
        match self.pattern.split_once('*') {
            Some((start, part)) => kind.starts_with(start) && kind.contains(part),
            None => kind.starts_with(self.pattern),
        }
    }
}

/// All rows.
pub(crate) fn table() -> Vec<Known> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.filter_map(|line| line.split_once(" => "))
        .map(|(pattern, reason)| Known { pattern: pattern.trim(), reason: reason.trim() })
        .collect()
}

/// The row for a kind of difference.
pub(crate) fn find<'a>(table: &'a [Known], kind: &str) -> Option<&'a Known> {
    table.iter().find(|known| known.matches(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_reason_and_patterns_are_beginnings() {
        let table = table();
        assert!(table.iter().all(|known| known.reason.len() > 10), "{table:?}");
        let known = Known { pattern: "we reject: a*of b", reason: "because of a test" };
        assert!(known.matches("we reject: a thing of b / c"));
        assert!(!known.matches("we reject: another") && !known.matches("ptxas rejects: a of b"));
    }
}
