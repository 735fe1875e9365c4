//! Checks of single values.

use std::fmt;

use retrograph_runtime::Ranks;

use crate::error::{Error, Result};

/// Requires that the `rule` of a field `holds`.
pub(super) fn require(
    field: &'static str,
    value: impl fmt::Display,
    holds: bool,
    rule: &str,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::InvalidConfig { field, value: value.to_string(), rule: rule.to_owned() })
}

/// Requires a number from 1 to `most`.
pub(super) fn within(field: &'static str, value: usize, most: usize) -> Result<()> {
    require(field, value, (1..=most).contains(&value), &format!("from 1 to {most}"))
}

/// Requires that there is such a rank.
pub(crate) fn require_rank(ranks: Ranks) -> Result<()> {
    let rule = format!("less than the number of ranks, {}", ranks.count);
    require("rank", ranks.rank, ranks.is_valid(), &rule)
}
