//! The elements that dropout keeps.

use crate::sampling::reference::philox;

/// Whether [`Dropout`](crate::elementwise::Dropout) keeps element `index`.
pub fn keeps(index: usize, [step, sequence]: [u32; 2], seed: u64, probability: f32) -> bool {
    let counter = [(index / 4) as u32, step, sequence, 1];
    let word = philox(counter, [seed as u32, (seed >> 32) as u32])[index % 4];
    f64::from(word) / 4_294_967_296.0 >= f64::from(probability)
}
