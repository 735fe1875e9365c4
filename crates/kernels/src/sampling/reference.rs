//! Sampling of the next token in f64.

use crate::sampling::SamplingParameters;

/// Four random words from a counter and a key: Philox 4x32-10.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut words, mut key) = (counter, key);
    for _ in 0..10 {
        let product = |word: u32, factor: u32| u64::from(word) * u64::from(factor);
        let (first, second) = (product(words[0], 0xD251_1F53), product(words[2], 0xCD9E_8D57));
        words = [
            (second >> 32) as u32 ^ words[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ words[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    words
}

/// The Gumbel number of a token in a draw.
pub fn gumbel(token: usize, seed: u64, draw: u32) -> f64 {
    let counter = [token as u32 / 4, draw, 0, 0];
    let word = philox(counter, [seed as u32, (seed >> 32) as u32])[token % 4];
    let u = (f64::from(word) + 0.5) / 4_294_967_296.0;
    -(-(-u).ln_1p()).ln()
}

/// The logits after the penalty for seen tokens.
pub fn adjusted(logits: &[f64], seen: &[bool], penalty: f64) -> Vec<f64> {
    let adjust = |(&z, &seen): (&f64, &bool)| match (seen, z < 0.0) {
        (false, _) => z,
        (true, true) => z * penalty,
        (true, false) => z / penalty,
    };
    logits.iter().zip(seen).map(adjust).collect()
}

/// The smallest of `adjusted` that top-k and top-p keep.
pub fn threshold(adjusted: &[f64], sampling: SamplingParameters) -> f64 {
    let mut sorted = adjusted.to_vec();
    sorted.sort_by(|left, right| right.total_cmp(left));
    let top_k = sampling.top_k as usize;
    if (1..sorted.len()).contains(&top_k) {
        let last = sorted[top_k - 1];
        sorted.truncate(sorted.partition_point(|&z| z >= last));
    }
    if sampling.top_p < 1.0 {
        let max = sorted[0];
        let weight = |&z: &f64| ((z - max) / f64::from(sampling.temperature)).exp();
        let target = f64::from(sampling.top_p) * sorted.iter().map(weight).sum::<f64>();
        let mut sum = 0.0;
        let reached = sorted.iter().position(|z| {
            sum += weight(z);
            sum >= target
        });
        return reached.map_or(f64::NEG_INFINITY, |at| sorted[at]);
    }
    sorted.last().copied().unwrap_or(f64::NEG_INFINITY)
}

/// The score of each token; the largest is chosen. −∞ for tokens that are not kept.
pub fn scores(adjusted: &[f64], sampling: SamplingParameters) -> Vec<f64> {
    if sampling.temperature <= 0.0 {
        return adjusted.to_vec();
    }
    let max = adjusted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = threshold(adjusted, sampling);
    let score = |(token, &z): (usize, &f64)| match z >= least {
        true => {
            let noise = gumbel(token, sampling.seed, sampling.draw);
            (z - max) / f64::from(sampling.temperature) + noise
        }
        false => f64::NEG_INFINITY,
    };
    adjusted.iter().enumerate().map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_words_that_its_authors_publish() {
        let zero = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(philox([0; 4], [0; 2]), zero);
        let ones = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), ones);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, 1.0, -1.0, 2.0, 0.5_f64];
        let sum: f64 = logits.iter().map(|z| z.exp()).sum();
        let draws = 200_000;
        let mut counts = [0.0_f64; 5];
        for draw in 0..draws {
            let score = |token: usize| logits[token] + gumbel(token, 0x1234_5678_9abc_def0, draw);
            let best = (0..5).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
            counts[best] += 1.0;
        }
        let square = |(count, z): (&f64, &f64)| {
            let expected = z.exp() / sum * f64::from(draws);
            (count - expected).powi(2) / expected
        };
        let chi: f64 = counts.iter().zip(&logits).map(square).sum();
        // Four degrees of freedom: one in ten thousand is above.
        assert!(chi < 23.5, "χ² is {chi}, counts {counts:?}");
    }

    #[test]
    fn the_kept_tokens_are_the_fewest_that_reach_top_p() {
        let logits: Vec<f64> = [0.5, 0.3, 0.1, 0.06, 0.04].iter().map(|p: &f64| p.ln()).collect();
        let kept = |top_k, top_p| {
            let sampling = SamplingParameters {
                temperature: 1.0,
                top_k,
                top_p,
                repetition_penalty: 1.0,
                seed: 0,
                draw: 0,
            };
            let least = threshold(&logits, sampling);
            logits.iter().filter(|&&z| z >= least).count()
        };
        assert_eq!((kept(0, 1.0), kept(3, 1.0), kept(0, 0.79), kept(0, 0.81)), (5, 3, 2, 3));
        // Of the three that are kept first, 0.9 in all, two make up 0.8 of 0.9.
        assert_eq!((kept(3, 0.88), kept(3, 0.89), kept(0, 0.0)), (2, 3, 1));
    }
}
