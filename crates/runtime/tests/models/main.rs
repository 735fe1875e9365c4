//! Checks all interleavings of threads in the module cache's single flight, and of host and device
//! in the control ring, with the model checker `loom`.
//!
//! The checked source files are included here, with the checker's locks instead of the locks of the
//! crate.

#[path = "../../src/modules/flight.rs"]
#[allow(dead_code, reason = "the models do not call everything")]
mod flight;
mod flights;
#[path = "../../src/program/ring_counter.rs"]
#[allow(dead_code, reason = "the models do not call everything")]
mod ring_counter;
mod rings;
#[path = "../support/locks.rs"]
#[allow(dead_code, unreachable_pub, reason = "other models use the rest")]
mod sync;

/// Runs `model` in every interleaving with at most two preemptions per thread.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}
