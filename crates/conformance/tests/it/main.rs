//! Tests of the conformance crate: its language, and the simulator against recordings.

#![expect(clippy::print_stderr, reason = "prints differences before the test fails")]

mod language;
mod planted;
mod recorder;
mod replay;
mod vectors;
