//! Messages about libraries that cannot be loaded; `retrograph-nccl-sys` and `retrograph-runtime`
//! use them too.

use std::error::Error;

/// Returns the message of the dynamic loader, which the error itself only carries as its source.
pub fn message(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Joins the names that were tried, each with the message of its failure.
pub fn tried_names(tried: &[(String, String)]) -> String {
    let texts = tried.iter().map(|(name, reason)| match reason.contains(name.as_str()) {
        true => reason.clone(),
        false => format!("{name}: {reason}"),
    });
    texts.collect::<Vec<_>>().join("; ")
}
