//! Text from a trained model: the forward pass on the device, the choice of each token on the host.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use retrograph_runtime::{Bindings, DeviceBuffer, Policy, Program};

use crate::config::BYTE_VOCABULARY;
use crate::error::Result;
use crate::model::ForwardPass;
use crate::trainer::{RotaryTables, TrainedModel};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this before the softmax; at 0 the likeliest token is taken.
    pub temperature: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl TrainedModel {
    /// Continues `prompt` by `count` bytes. The window is that of the training; when it is full,
    /// its first half is forgotten.
    ///
    /// # Errors
    /// When the device has too little memory or fails.
    pub fn generate(&self, prompt: &[u8], count: usize, sampling: Sampling) -> Result<Vec<u8>> {
        let (seq, vocab) = (self.config.seq, self.config.model.vocab);
        let forward = ForwardPass::new(&self.config)?;
        let logits = DeviceBuffer::zeroed(self.stream.context(), seq * vocab)?;
        let mut program = self.program(&forward, &logits)?;
        let mut controls = forward.pass.controls();
        let mut window = Window::new(prompt, seq);
        let mut generator = ChaCha8Rng::seed_from_u64(sampling.seed);
        let mut text = Vec::with_capacity(count);
        for _ in 0..count {
            controls.set_array(forward.tokens, &window.padded())?;
            program.step(&self.stream, &controls)?;
            let row = (window.tokens.len() - 1) * vocab;
            let row = logits.download_range(&self.stream, row..row + BYTE_VOCABULARY.min(vocab))?;
            let token = choose(&row, sampling.temperature, generator.next_u32());
            text.push(token);
            window.push(token);
        }
        Ok(text)
    }

    fn program(&self, forward: &ForwardPass, logits: &DeviceBuffer<f32>) -> Result<Program> {
        let rotary = RotaryTables::new(&self.stream, &self.config)?;
        let mut bindings = Bindings::new();
        self.state.bind(&mut bindings, &forward.parameters);
        bindings.bind(forward.cos, &rotary.cos).bind(forward.sin, &rotary.sin);
        bindings.bind(forward.logits, logits);
        let (stream, modules) = (&self.stream, &self.modules);
        Ok(Program::build(stream, modules, &forward.pass, &bindings, Policy::Auto)?)
    }
}

/// The last tokens, at most as many as a sequence has.
struct Window {
    tokens: Vec<u8>,
    seq: usize,
}

impl Window {
    fn new(prompt: &[u8], seq: usize) -> Self {
        let kept = &prompt[prompt.len().saturating_sub(seq)..];
        // The model needs something to continue.
        let tokens = if kept.is_empty() { vec![b'\n'] } else { kept.to_vec() };
        Self { tokens, seq }
    }

    fn push(&mut self, token: u8) {
        if self.tokens.len() == self.seq {
            self.tokens.drain(..self.seq.div_ceil(2));
        }
        self.tokens.push(token);
    }

    /// The tokens, and zeros that no earlier position sees.
    fn padded(&self) -> Vec<u32> {
        let mut tokens: Vec<u32> = self.tokens.iter().copied().map(u32::from).collect();
        tokens.resize(self.seq, 0);
        tokens
    }
}

/// The token that `draw`, a uniform number, falls on.
fn choose(logits: &[f32], temperature: f32, draw: u32) -> u8 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if temperature <= 0.0 {
        return logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u8;
    }
    let weight = |&logit: &f32| (f64::from(logit - largest) / f64::from(temperature)).exp();
    let weights: Vec<f64> = logits.iter().map(weight).collect();
    let mut left = f64::from(draw) / (f64::from(u32::MAX) + 1.0) * weights.iter().sum::<f64>();
    for (token, weight) in weights.iter().enumerate() {
        if left < *weight {
            return token as u8;
        }
        left -= weight;
    }
    // Rounding can leave a little after the last weight.
    (weights.len() - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_temperature_the_likeliest_is_chosen() {
        let mut logits = vec![0.0; 256];
        logits[65] = 3.0;
        assert_eq!(choose(&logits, 0.0, 0), 65);
        assert_eq!(choose(&logits, 0.0, u32::MAX), 65);
    }

    #[test]
    fn draws_follow_the_weights() {
        let mut logits = vec![f32::NEG_INFINITY; 256];
        (logits[3], logits[7]) = (0.0, 0.0);
        assert_eq!(choose(&logits, 1.0, 0), 3);
        assert_eq!(choose(&logits, 1.0, (u32::MAX / 2) - 1), 3);
        assert_eq!(choose(&logits, 1.0, (u32::MAX / 2) + 2), 7);
        assert_eq!(choose(&logits, 1.0, u32::MAX), 7);
    }

    #[test]
    fn a_full_window_forgets_its_first_half() {
        let mut window = Window::new(b"abcdef", 4);
        assert_eq!(window.tokens, b"cdef");
        window.push(b'g');
        assert_eq!(window.tokens, b"efg");
        assert_eq!(window.padded(), [101, 102, 103, 0]);
    }
}
