//! The PTX instruction set as one table, with a writer, a parser and typed registers.

pub mod ast;
pub mod build;
pub mod instructions;
mod print;
pub mod target;
mod words;

pub use target::{IsaVersion, SmTarget};
