//! Training as a whole. Every test runs on a simulated driver, or on the GPU that
//! `RETROGRAPH_DEVICE` names.

mod adapters;
mod architectures;
mod checkpoints;
mod conversations;
mod damage;
mod data;
mod device;
mod difference;
mod dropout;
mod evaluation;
mod exports;
mod generation;
mod gguf;
mod golden;
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
mod padded;
mod precision;
mod reference;
mod resume;
mod saving;
mod small_tokenizer;
mod strategies;
mod templates;
mod text;
mod tokenizer;
mod transformers;
