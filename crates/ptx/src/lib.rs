//! The PTX instruction set as one table, with a writer, a parser and typed registers.

pub mod target;

pub use target::{IsaVersion, SmTarget};
