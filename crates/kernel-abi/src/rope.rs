//! Rotary position embedding (RoPE) of one or two tensors.
//!
//! A thread handles one vec4 of pairs; the vec4s of the second tensor follow the vec4s of the
//! first.

use crate::parameters::parameters;
use crate::{Bf16, Signature};

parameters! {
    /// The parameters of [`ROPE`].
    pub struct RopeParameters {
        /// The first tensor, read.
        x: pointer<f32>,
        /// Its result in f32, written, or null.
        out: pointer<f32>,
        /// Its result in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// Its heads.
        heads: u32,
        /// The second tensor, read, or null.
        x_2: pointer<f32>,
        /// Its result in f32, written, or null.
        out_2: pointer<f32>,
        /// Its result in bf16, written, or null.
        out_2_bf16: pointer<Bf16>,
        /// Its heads, or 0.
        heads_2: u32,
        /// `positions × half` cosines, read.
        cos: pointer<f32>,
        /// `positions × half` sines, read.
        sin: pointer<f32>,
        /// The position of the first token of each sequence, read; null for 0.
        start: pointer<u32>,
        /// `[batch, seq]`: the position of each token, read; null for consecutive positions.
        token_positions: pointer<u32>,
        /// Vec4s of pairs of the first tensor.
        vec4s_of_first: u32,
        /// Vec4s of pairs of both tensors.
        vec4s: u32,
        /// Pairs of a head.
        half: u32,
        /// Tokens of a sequence.
        seq: u32,
        /// Rows of the tables.
        positions: u32,
        /// Whether to rotate back.
        inverse: bool,
    }
}

/// Threads of a block.
pub const THREADS: u32 = 128;

/// RoPE and its inverse.
pub const ROPE: Signature =
    Signature { image: "rope", parameters: RopeParameters::<()>::LIST, entries: &["rope"] };
