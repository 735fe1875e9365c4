//! What a thread carries of an operand: a few neighbouring elements on their way from global
//! memory to shared memory, in the form in which they were loaded, so that nothing waits for them
//! before they are needed.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

/// Elements of a block of NF4, which share a scale.
const NF4_BLOCK: u32 = 64;
/// Scales of a block of the second quantization.
const NESTED_BLOCK: u32 = 256;

/// The values of the codes of NF4, as bitsandbytes has them: quantiles of the normal distribution
/// (Dettmers et al., "QLoRA", arXiv 2305.14314, appendix E).
const NF4_VALUES: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

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

    /// Element `index` behind `address`, as f32. Codes come in vectors only.
    pub(crate) fn element(self, address: Value<'k, u64>, index: Value<'k, u32>) -> Value<'k, f32> {
        match self {
            Self::F32 => Ptr::<f32>::from_address(address).load(index),
            Self::Bf16 => {
                Value::<f32>::from_bits(Ptr::<u32>::from_address(address).load_u16(index) << 16)
            }
            Self::Nf4(_) => unreachable!("codes come in vectors only"),
        }
    }
}

/// The scales of an operand in NF4, and the tables that codes are looked up in.
#[derive(Clone, Copy)]
pub(crate) struct Nf4<'k> {
    kernel: Kernel<'k>,
    /// One f32 for each block; one byte where `nested` is not null.
    absmax: Ptr<'k, f32>,
    /// Scales of the scales, or null.
    nested: Ptr<'k, f32>,
    /// 256 values of the bytes.
    map: Ptr<'k, f32>,
    /// What is added to each scale.
    offset: Ptr<'k, f32>,
    /// The values of codes, and then those of bytes.
    tables: Shared<'k, f32>,
}

impl<'k> Nf4<'k> {
    /// Declares the parameters of the scales, and fills the tables. Nothing may be read from them
    /// before the next barrier.
    pub(crate) fn declare(k: &Kernel<'k>) -> Self {
        let [absmax, nested, map, offset] =
            ["b_absmax", "b_nested", "b_map", "b_offset"].map(|name| k.pointer::<f32>(name));
        let tables = k.shared::<f32>("tables", NF4_VALUES.len() + NESTED_BLOCK as usize);
        Self { kernel: *k, absmax, nested, map, offset, tables }
    }

    /// Fills the tables, by all threads of the block.
    pub(crate) fn fill_tables(&self) {
        let k = self.kernel;
        let codes = NF4_VALUES.len() as u32;
        k.when(k.tid_x().lt(codes), || {
            let value = (0..).zip(NF4_VALUES).fold(k.constant(0.0), |found, (code, value)| {
                k.tid_x().eq(code).select(k.constant(value), found)
            });
            self.tables.store(k.tid_x(), value);
        });
        k.when(!self.nested.is_null(), || {
            k.range(k.tid_x(), 256, k.ntid_x(), |code| {
                self.tables.offset(codes.into()).store(code, self.map.load(code));
            });
        });
        k.barrier();
    }

    /// Starts loading the scale of the block of element `index`.
    fn fetch(&self, index: Value<'k, u32>, [scale, nested]: [Var<'k, f32>; 2]) {
        let block = index >> NF4_BLOCK.ilog2();
        self.kernel.when_else(
            self.nested.is_null(),
            || scale.set(self.absmax.load(block)),
            || {
                scale.set(Value::<f32>::from_bits(self.absmax.load_u8(block)));
                nested.set(self.nested.load(block >> NESTED_BLOCK.ilog2()));
            },
        );
    }

    /// The scale that was fetched: a product and a sum, each rounded, where it is nested.
    fn scale(&self, [scale, nested]: [Var<'k, f32>; 2]) -> Value<'k, f32> {
        let k = self.kernel;
        let result = k.var(scale.get());
        k.when(!self.nested.is_null(), || {
            let value = self.tables.offset(NF4_VALUES.len() as i64).load(scale.get().bits());
            result.set(value * nested.get() + self.offset.load(0));
        });
        result.get()
    }

    /// The value of element `element` of a word of codes: the first of two lies in the upper half
    /// of its byte.
    fn value(&self, word: Value<'k, u32>, element: u32) -> Value<'k, f32> {
        let shift = element / 2 * 8 + if element.is_multiple_of(2) { 4 } else { 0 };
        self.tables.load((word >> shift) & 15)
    }
}

/// A few neighbouring elements.
pub(crate) enum Cargo<'k> {
    /// As f32.
    Floats(Vec<Var<'k, f32>>),
    /// As bf16, two in a word.
    Halves(Vec<Var<'k, u32>>),
    /// As codes, with their scale.
    Codes { word: Var<'k, u32>, scale: [Var<'k, f32>; 2], of: Nf4<'k>, unit: u32 },
}

impl<'k> Cargo<'k> {
    /// Room for `unit` elements, 4 or 8.
    pub(crate) fn new(k: &Kernel<'k>, stored: Stored<'k>, unit: u32) -> Self {
        match stored {
            Stored::F32 => Self::Floats((0..unit).map(|_| k.var(0.0f32)).collect()),
            Stored::Bf16 => Self::Halves((0..unit / 2).map(|_| k.var(0u32)).collect()),
            Stored::Nf4(of) => {
                let scale = [(); 2].map(|()| k.var(0.0f32));
                Self::Codes { word: k.var(0u32), scale, of, unit }
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

    /// The elements as f32, whatever they are stored as.
    pub(crate) fn decoded(&self) -> Vec<Value<'k, f32>> {
        let Self::Halves(vars) = self else { return self.floats() };
        let pair = |word: Value<'k, u32>| [word << 16, word & 0xffff_0000];
        let bits = vars.iter().flat_map(|var| pair(var.get()));
        bits.map(Value::<f32>::from_bits).collect()
    }

    /// The elements as f32. There is no product in f32 with an operand in bf16.
    pub(super) fn floats(&self) -> Vec<Value<'k, f32>> {
        match self {
            Self::Floats(vars) => vars.iter().map(|var| var.get()).collect(),
            Self::Halves(_) => unreachable!("operands in bf16 are multiplied as bf16"),
            Self::Codes { word, scale, of, unit } => {
                let (word, scale) = (word.get(), of.scale(*scale));
                (0..*unit).map(|element| of.value(word, element) * scale).collect()
            }
        }
    }
}

/// Two floats as bf16 in a word, each rounded to the nearest, ties to even; NaN stays NaN.
fn pack<'k>(target: SmTarget, [low, high]: [Value<'k, f32>; 2]) -> Value<'k, u32> {
    if target.number >= 80 {
        return low.pack_bf16(high);
    }
    let round = |value: Value<'k, f32>| {
        let bits = value.bits();
        let rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;
        value.ne(value).select(bits.kernel().constant(0x7fff), rounded)
    };
    round(low) | (round(high) << 16)
}
