//! The crate against itself and against `ptxas`.

mod build;
mod bulk;
mod control;
mod forms;
mod long;
mod math;
mod mutants;
mod ptxas;
mod rejected;
mod table;
mod text;
mod validate;
