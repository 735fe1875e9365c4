//! Runs the examples of pages that no published package contains, or whose package does not depend
//! on the crates of its examples.

#[doc = include_str!("../../driver-sys/README.md")]
struct DriverSys;

#[doc = include_str!("../../../docs/ffi.md")]
struct Ffi;

#[doc = include_str!("../../../docs/kernel-launches.md")]
struct KernelLaunches;

#[doc = include_str!("../../../docs/simulator.md")]
struct Simulator;
