//! What a thread carries of an operand: a few neighbouring elements on their way from global
//! memory to shared memory, in the form in which they were loaded, so that nothing waits for them
//! before they are needed.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use super::nf4::Nf4;
use crate::primitives::bf16::pack;

/// How the elements of an operand lie in memory.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'k> {
    /// As f32.
    F32,
    /// As bf16.
    Bf16,
    /// As codes of 4 bits with a scale for each block.
    Nf4(Nf4<'k>),
}

impl<'k> Stored<'k> {
    /// How many bytes there are for each element, where there are whole ones.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Nf4(_) => 1,
        }
    }

    /// Elements that one load can bring, of a cargo of `unit`.
    pub(super) fn vector(self, unit: u32) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::Nf4(_) => unit,
        }
    }
}

/// A few neighbouring elements.
pub(crate) enum Cargo<'k> {
    /// As f32.
    Floats(Vec<Var<'k, f32>>),
    /// As bf16, two in a word.
    Halves(Vec<Var<'k, u32>>),
    /// As codes, with their scale.
    Codes { word: Var<'k, u32>, scale: [Var<'k, f32>; 2], of: Box<Nf4<'k>>, unit: u32 },
}

impl<'k> Cargo<'k> {
    /// Room for `unit` elements, 4 or 8.
    pub(crate) fn new(k: &Kernel<'k>, stored: Stored<'k>, unit: u32) -> Self {
        match stored {
            Stored::F32 => Self::Floats((0..unit).map(|_| k.var(0.0f32)).collect()),
            Stored::Bf16 => Self::Halves((0..unit / 2).map(|_| k.var(0u32)).collect()),
            Stored::Nf4(of) => {
                let scale = [(); 2].map(|()| k.var(0.0f32));
                Self::Codes { word: k.var(0u32), scale, of: Box::new(of), unit }
            }
        }
    }

    /// Starts loading by aligned vectors; `index(j)` is the place of element j and of those that a
    /// vector brings with it.
    pub(crate) fn fetch_vectors(
        &self,
        address: Value<'k, u64>,
        index: impl Fn(u32) -> Value<'k, u32>,
    ) {
        match self {
            Self::Floats(vars) => {
                for (quad, vars) in (0..).zip(vars.chunks_exact(4)) {
                    let loaded = Ptr::<f32>::from_address(address).load_vec4(index(quad * 4));
                    vars.iter().zip(loaded).for_each(|(var, value)| var.set(value));
                }
            }
            Self::Halves(vars) => {
                let words = index(0) >> 1;
                match vars[..] {
                    [a, b, c, d] => {
                        let loaded = Ptr::<u32>::from_address(address).load_vec4(words);
                        [a, b, c, d].into_iter().zip(loaded).for_each(|(var, v)| var.set(v));
                    }
                    _ => unreachable!("a cargo of bf16 has eight elements"),
                }
            }
            Self::Codes { word, scale, of, unit } => {
                let (index, codes) = (index(0), Ptr::<u32>::from_address(address));
                word.set(if *unit == 8 {
                    codes.load(index >> 3)
                } else {
                    codes.load_u16(index >> 2)
                });
                of.fetch(index, *scale);
            }
        }
    }

    /// Starts loading element by element. Codes come in vectors only.
    pub(super) fn fetch_each(
        &self,
        address: Value<'k, u64>,
        index: impl Fn(u32) -> Value<'k, u32>,
    ) {
        match self {
            Self::Floats(vars) => {
                let pointer = Ptr::<f32>::from_address(address);
                (0..).zip(vars).for_each(|(j, var)| var.set(pointer.load(index(j))));
            }
            Self::Halves(vars) => {
                let pointer = Ptr::<u32>::from_address(address);
                for (j, var) in (0..).zip(vars) {
                    let [low, high] = [2 * j, 2 * j + 1].map(|j| pointer.load_u16(index(j)));
                    var.set(low | (high << 16));
                }
            }
            Self::Codes { .. } => {}
        }
    }

    /// The elements as bf16, two in a word, each rounded to the nearest, ties to even.
    pub(super) fn words(&self, target: SmTarget) -> Vec<Value<'k, u32>> {
        match self {
            Self::Halves(vars) => vars.iter().map(|var| var.get()).collect(),
            Self::Floats(vars) => {
                let pair = |pair: &[Var<'k, f32>]| pack(target, [pair[0].get(), pair[1].get()]);
                vars.chunks_exact(2).map(pair).collect()
            }
            Self::Codes { .. } => {
                let values = self.floats();
                values.chunks_exact(2).map(|pair| pack(target, [pair[0], pair[1]])).collect()
            }
        }
    }

    /// The elements as f32. There is no product in f32 with an operand in bf16.
    pub(super) fn floats(&self) -> Vec<Value<'k, f32>> {
        match self {
            Self::Floats(vars) => vars.iter().map(|var| var.get()).collect(),
            Self::Halves(_) => unreachable!("operands in bf16 are multiplied as bf16"),
            Self::Codes { word, scale, of, unit } => {
                let (word, scale) = (word.get(), of.scale(scale.map(Var::get)));
                (0..*unit).map(|element| of.value(word, element) * scale).collect()
            }
        }
    }
}
