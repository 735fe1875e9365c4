//! The program from outside: what it prints, writes and returns.

mod adapters;
mod caches;
mod errors;
mod models;
mod program;
mod runs;
