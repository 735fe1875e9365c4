//! Images that are built into a folder in place of `OUT_DIR`.
#![cfg(unix)]

mod built;
mod real;
mod refused;
mod tools;
