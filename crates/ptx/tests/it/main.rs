//! The crate against itself and against `ptxas`.

mod build;
mod math;
mod ptxas;
mod rejected;
mod table;
mod text;
