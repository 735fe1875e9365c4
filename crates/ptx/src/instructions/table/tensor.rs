//! Asynchronous copies, matrix loads and stores, and tensor cores.
