//! Finds the best token of each chunk, and the best of all chunks.

use retrograph_kernel_abi::sampling::{
    SAMPLE_DRAW, SAMPLE_PICK, SampleDrawParameters, SamplePickParameters, THREADS,
};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Value, Var};

use super::weights::key;
use super::{Sampling, for_each_chunk_vec4, of_sequence};
use crate::primitives::parameters::Declarations;
use crate::primitives::philox::{SAMPLING_DOMAIN, gumbel, philox};
use crate::primitives::vec4::{Vec4, aligned};

/// The entry `sample_draw`.
pub(super) fn entry() -> Entry {
    Kernel::build(SAMPLE_DRAW.entry(), |k| {
        k.max_threads(THREADS);
        let SampleDrawParameters { adjusted, selection, sampling, scores, tokens, vocab } =
            SampleDrawParameters::declare(&mut Declarations(*k));
        let adjusted = of_sequence(adjusted, vocab);
        let selection = of_sequence(selection, 2);
        let scores = of_sequence(scores, k.nctaid_x());
        let tokens = of_sequence(tokens, k.nctaid_x());

        let sampling_params = Sampling::load(sampling);
        let max = Value::<f32>::from_bits(selection.load(0));
        let threshold = selection.load(1);
        let random = sampling_params.temperature.gt(0.0);
        let vectors = aligned(&[adjusted]);
        let best = Best::new(k);
        for_each_chunk_vec4(k, |first| {
            let vec4 = Vec4::new(first, vocab, vectors);
            let z = vec4.load(adjusted);
            let scores = z.map(|z| k.var(z));
            k.when(random, || {
                let (sequence, domain) = (k.constant(0), k.constant(SAMPLING_DOMAIN));
                let counter = [first >> 2, sampling_params.draw, sequence, domain];
                let words = philox(counter, sampling_params.seed);
                for ((score, z), word) in scores.iter().zip(z).zip(words) {
                    let noisy = (z - max) / sampling_params.temperature + gumbel(word);
                    score.set(key(z).ge(threshold).select(noisy, f32::NEG_INFINITY));
                }
            });
            for (lane, score) in scores.iter().enumerate() {
                let token = first + lane as u32;
                k.when(token.lt(vocab), || best.update(score.get(), token));
            }
        });
        let (score, token) = best.reduce_block(k);
        k.when(k.tid_x().eq(0), || {
            scores.store(k.ctaid_x(), score);
            tokens.store(k.ctaid_x(), token);
        });
    })
}

/// The entry `sample_pick`.
pub(super) fn pick() -> Entry {
    Kernel::build(SAMPLE_PICK.entry(), |k| {
        k.max_threads(THREADS);
        let SamplePickParameters { scores, tokens, selection, sampled, chunks } =
            SamplePickParameters::declare(&mut Declarations(*k));
        let scores = of_sequence(scores, chunks);
        let tokens = of_sequence(tokens, chunks);
        let selection = of_sequence(selection, 2);

        let best = Best::new(k);
        k.range(k.tid_x(), chunks, THREADS, |chunk| {
            best.update(scores.load(chunk), tokens.load(chunk));
        });
        let (_, token) = best.reduce_block(k);
        let max = Value::<f32>::from_bits(selection.load(0));
        let valid = max.is_finite() & token.ne(u32::MAX);
        k.when(k.tid_x().eq(0), || {
            let (sequence, sequences) = (k.ctaid_y(), k.nctaid_y());
            sampled.store(sequence, valid.select(token, 0));
            sampled.store(sequences + sequence, valid.select(0u32, 1u32));
        });
    })
}

/// A running argmax: the highest score and its token; ties go to the lowest token.
struct Best<'k> {
    score: Var<'k, f32>,
    token: Var<'k, u32>,
}

impl<'k> Best<'k> {
    fn new(k: &Kernel<'k>) -> Self {
        Self { score: k.var(f32::NEG_INFINITY), token: k.var(u32::MAX) }
    }

    /// Replaces the best by a better candidate.
    fn update(&self, score: Value<'k, f32>, token: Value<'k, u32>) {
        let (best_score, best_token) = (self.score.get(), self.token.get());
        let better = score.gt(best_score) | (score.eq(best_score) & token.lt(best_token));
        self.score.set(better.select(score, best_score));
        self.token.set(better.select(token, best_token));
    }

    /// The argmax over the block.
    fn reduce_block(&self, k: &Kernel<'k>) -> (Value<'k, f32>, Value<'k, u32>) {
        self.reduce_warp(k);
        const WARPS: u32 = THREADS / 32;
        let scores = k.shared::<f32>("best_scores", WARPS as usize);
        let tokens = k.shared::<u32>("best_tokens", WARPS as usize);
        k.when(k.lane().eq(0), || {
            scores.store(k.warp(), self.score.get());
            tokens.store(k.warp(), self.token.get());
        });
        k.barrier();
        for warp in 0..WARPS {
            self.update(scores.load(warp), tokens.load(warp));
        }
        (self.score.get(), self.token.get())
    }

    fn reduce_warp(&self, k: &Kernel<'k>) {
        for mask in [16, 8, 4, 2, 1] {
            let score = k.shfl_bfly(self.score.get(), mask);
            let token = k.shfl_bfly(self.token.get(), mask);
            self.update(score, token);
        }
    }
}
