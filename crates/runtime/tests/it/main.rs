//! Tests of the runtime, on the simulated driver or on a GPU: see `device`.

mod analysis;
mod described;
mod refusals;
