//! Programs against what PTX says they do.
