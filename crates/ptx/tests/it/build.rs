//! Kernels from the builder.
