//! Tests of the conformance crate: its language, and the simulator against what was recorded.

mod language;
mod planted;
mod replay;
mod vectors;
