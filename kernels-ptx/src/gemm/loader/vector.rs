//! Consecutive elements of an operand in registers, between global and shared memory.
//!
//! They are converted only when they are stored, so no earlier instruction waits for the load.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use crate::primitives::bf16::pack;
use crate::primitives::f16;
use crate::primitives::nf4::Nf4;
use crate::primitives::registers::set;

/// The element format of an operand in global memory.
#[derive(Clone, Copy)]
pub(in crate::gemm) enum OperandFormat<'k> {
    F32,
    Bf16,
    /// Hi and lo terms of f16.
    SplitF16(LoTerm<'k>),
    /// 4-bit codes with their scales.
    Nf4(Nf4<'k>),
}

/// The lo term of a split operand.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct LoTerm<'k> {
    /// Offset from the hi term in bytes.
    pub(in crate::gemm) offset: Value<'k, u64>,
    /// Whether it exists; always if `None`. A missing lo term is 0.
    pub(in crate::gemm) exists: Option<Pred<'k>>,
}

impl<'k> OperandFormat<'k> {
    /// Bytes of an element; 1 for NF4, which is never addressed by bytes.
    pub(in crate::gemm) fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::SplitF16(_) => 2,
            Self::Nf4(_) => 1,
        }
    }

    /// Elements that one instruction loads, out of a vector of `len`.
    pub(super) fn elements_per_load(self, len: u32) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::SplitF16(_) | Self::Nf4(_) => len,
        }
    }
}

/// Consecutive elements in registers, in their format in global memory.
pub(super) enum LoadedVector<'k> {
    F32(Vec<Var<'k, f32>>),
    /// Two elements per word.
    Bf16(Vec<Var<'k, u32>>),
    /// Four elements of each term, two per word.
    SplitF16 {
        terms: [[Var<'k, u32>; 2]; 2],
        lo_term: LoTerm<'k>,
    },
    /// `len` codes in a word, and the scale of their block.
    Nf4 {
        codes: Var<'k, u32>,
        scale: [Var<'k, f32>; 2],
        nf4: Box<Nf4<'k>>,
        len: u32,
    },
}

impl<'k> LoadedVector<'k> {
    /// Registers for `len` elements, 4 or 8.
    pub(super) fn new(k: &Kernel<'k>, format: OperandFormat<'k>, len: u32) -> Self {
        match format {
            OperandFormat::F32 => Self::F32((0..len).map(|_| k.var(0.0f32)).collect()),
            OperandFormat::Bf16 => Self::Bf16((0..len / 2).map(|_| k.var(0u32)).collect()),
            OperandFormat::SplitF16(lo_term) => {
                assert_eq!(len, 4, "terms are loaded four elements at a time");
                Self::SplitF16 { terms: [(); 2].map(|()| [(); 2].map(|()| k.var(0u32))), lo_term }
            }
            OperandFormat::Nf4(nf4) => {
                let scale = [(); 2].map(|()| k.var(0.0f32));
                Self::Nf4 { codes: k.var(0u32), scale, nf4: Box::new(nf4), len }
            }
        }
    }

    /// Starts loading by aligned vectors. `index(j)` is the index of element j, the first one of a
    /// vector.
    pub(super) fn load_vectors(
        &self,
        address: Value<'k, u64>,
        index: impl Fn(u32) -> Value<'k, u32>,
    ) {
        match self {
            Self::F32(vars) => {
                for (vec4, vars) in (0..).zip(vars.chunks_exact(4)) {
                    set(vars, Ptr::<f32>::from_address(address).load_vec4(index(vec4 * 4)));
                }
            }
            Self::Bf16(vars) => {
                let words = index(0) >> 1;
                assert_eq!(vars.len(), 4, "a vector of bf16 has eight elements");
                set(vars, Ptr::<u32>::from_address(address).load_vec4(words));
            }
            Self::SplitF16 { terms: [hi, lo], lo_term } => {
                let word = index(0) >> 1;
                set(hi, Ptr::<u32>::from_address(address).load_vec2(word));
                let load = || {
                    set(lo, Ptr::<u32>::from_address(address + lo_term.offset).load_vec2(word));
                };
                match lo_term.exists {
                    Some(exists) => word.kernel().when(exists, load),
                    None => load(),
                }
            }
            Self::Nf4 { codes, scale, nf4, len } => {
                let (index, words) = (index(0), Ptr::<u32>::from_address(address));
                codes.set(if *len == 8 {
                    words.load(index >> 3)
                } else {
                    words.load_u16(index >> 2)
                });
                nf4.fetch(index, *scale);
            }
        }
    }

    /// Starts loading element by element. NF4 and split f16 are always loaded by vectors.
    pub(super) fn load_scalars(
        &self,
        address: Value<'k, u64>,
        index: impl Fn(u32) -> Value<'k, u32>,
    ) {
        match self {
            Self::F32(vars) => {
                let pointer = Ptr::<f32>::from_address(address);
                (0..).zip(vars).for_each(|(j, var)| var.set(pointer.load(index(j))));
            }
            Self::Bf16(vars) => {
                let pointer = Ptr::<u32>::from_address(address);
                for (j, var) in (0..).zip(vars) {
                    let [low, high] = [2 * j, 2 * j + 1].map(|j| pointer.load_u16(index(j)));
                    var.set(low | (high << 16));
                }
            }
            Self::Nf4 { .. } | Self::SplitF16 { .. } => {}
        }
    }

    /// Converts the elements to bf16, two per word, rounded to nearest even.
    pub(super) fn to_bf16(&self, target: SmTarget) -> Vec<Value<'k, u32>> {
        match self {
            Self::Bf16(vars) => vars.iter().map(|var| var.get()).collect(),
            Self::F32(vars) => {
                let pair = |pair: &[Var<'k, f32>]| pack(target, [pair[0].get(), pair[1].get()]);
                vars.chunks_exact(2).map(pair).collect()
            }
            Self::Nf4 { .. } | Self::SplitF16 { .. } => {
                let values = self.to_f32();
                values.chunks_exact(2).map(|pair| pack(target, [pair[0], pair[1]])).collect()
            }
        }
    }

    /// Converts the elements to f32. f32 kernels have no bf16 operands.
    pub(super) fn to_f32(&self) -> Vec<Value<'k, f32>> {
        match self {
            Self::F32(vars) => vars.iter().map(|var| var.get()).collect(),
            Self::SplitF16 { terms, .. } => {
                let [hi, lo] = terms.map(|term| term.map(|word| f16::unpack(word.get())));
                let pairs = hi.as_flattened().iter().zip(lo.as_flattened());
                pairs.map(|(&hi, &lo)| hi + lo).collect()
            }
            Self::Bf16(_) => unreachable!("operands in bf16 are multiplied as bf16"),
            Self::Nf4 { codes, scale, nf4, len } => {
                let (codes, scale) = (codes.get(), nf4.scale(scale.map(Var::get)));
                (0..*len).map(|element| nf4.value(codes, element) * scale).collect()
            }
        }
    }
}
