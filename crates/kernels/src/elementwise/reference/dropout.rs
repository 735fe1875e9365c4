//! Which elements dropout keeps.

use crate::sampling::reference::philox;

/// Whether element `index` is kept, with the words of the kernel: see
/// [`Dropout`](crate::ops::Dropout).
pub fn keeps(index: usize, [step, stream]: [u32; 2], seed: u64, probability: f32) -> bool {
    let counter = [(index / 4) as u32, step, stream, 1];
    let word = philox(counter, [seed as u32, (seed >> 32) as u32])[index % 4];
    f64::from(word) / 4_294_967_296.0 >= f64::from(probability)
}
