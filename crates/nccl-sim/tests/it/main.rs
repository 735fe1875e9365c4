//! The simulated NCCL, with one thread per rank.

mod collectives;
mod faults;
mod graphs;
mod rank;
mod windows;
