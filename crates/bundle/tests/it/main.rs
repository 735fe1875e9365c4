//! Bundles that are made by an assembler: a program that copies its input, or the real one.
#![cfg(unix)]

mod assembled;
mod real;
