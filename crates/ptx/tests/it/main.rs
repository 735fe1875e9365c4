//! The crate against itself and against `ptxas`.

mod build;
mod ptxas;
mod rejected;
mod table;
mod text;
