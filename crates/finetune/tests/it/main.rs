//! Training as a whole. Every test runs on a simulated driver, or on the GPU that
//! `RETROGRAPH_DEVICE` names.

mod adapted;
mod adapters;
mod architectures;
mod checkpoints;
mod conversations;
mod damage;
mod data;
mod data_parallel;
mod device;
mod difference;
mod dropout;
mod evaluation;
mod exports;
mod failing_ranks;
mod generation;
mod gguf;
mod golden;
mod groups;
mod hazards;
mod held_out;
mod hub;
mod ignored;
mod interleaved;
mod lengths;
mod memory;
mod mixing;
mod models;
mod nf4;
mod packing;
mod padded;
#[cfg(feature = "parquet")]
mod parquet;
mod precision;
mod preference;
mod ranks;
mod reference;
mod resume;
mod saving;
mod small_tokenizer;
mod strategies;
mod templates;
mod text;
mod token_cache;
mod tokenizer;
mod transformers;
