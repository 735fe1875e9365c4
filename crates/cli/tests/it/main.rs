//! Tests of the program: its output, its files and its exit status.

mod adapters;
mod caches;
mod chat;
mod checkpoints;
mod configs;
mod data;
mod errors;
mod exports;
mod finite;
mod generate;
#[cfg(unix)]
mod kills;
#[cfg(unix)]
mod limits;
mod models;
mod outputs;
mod program;
#[cfg(target_os = "linux")]
mod ranks;
mod runs;
mod serve;
#[cfg(unix)]
mod signals;
#[cfg(target_os = "linux")]
mod streams;

/// The tokenizer of the library's tests.
#[allow(dead_code, reason = "these tests use only a part of it")]
#[path = "../../../finetune/tests/it/small_tokenizer.rs"]
mod small_tokenizer;
