//! Checks of single values.

use std::fmt;

use retrograph_runtime::Ranks;

use crate::error::{Error, Result};

/// Fails with the `rule` of a field unless it `holds`.
pub(crate) fn require(
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

/// Fails unless the value is from 1 to `max`.
pub(super) fn within(field: &'static str, value: usize, max: usize) -> Result<()> {
    require(field, value, (1..=max).contains(&value), &format!("from 1 to {max}"))
}

/// Fails unless the rank is less than the number of ranks.
pub(crate) fn require_rank(ranks: Ranks) -> Result<()> {
    let rule = format!("less than the number of ranks, {}", ranks.world_size);
    require("rank", ranks.rank, ranks.is_valid(), &rule)
}
