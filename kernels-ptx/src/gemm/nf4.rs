//! Operands in NF4: their scales, which can be quantized in turn, and the values of their codes.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use crate::bf16::pack;

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
    pub(super) fn fetch(&self, index: Value<'k, u32>, [scale, nested]: [Var<'k, f32>; 2]) {
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
    pub(super) fn scale(&self, [scale, nested]: [Var<'k, f32>; 2]) -> Value<'k, f32> {
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
    pub(super) fn value(&self, word: Value<'k, u32>, element: u32) -> Value<'k, f32> {
        let shift = element / 2 * 8 + if element.is_multiple_of(2) { 4 } else { 0 };
        self.tables.load((word >> shift) & 15)
    }
}

/// What the codes of one block stand for, rounded to bf16: a table in registers, which costs no
/// access to memory and as much for 16 codes as for all of a block.
pub(super) struct Rounded<'k> {
    /// The lower bytes of the 16 values, and the upper ones, four in a word.
    bytes: [[Value<'k, u32>; 4]; 2],
}

impl<'k> Rounded<'k> {
    /// The table of a block: a product that is rounded to f32, as everywhere, and then to bf16.
    pub(super) fn new(target: SmTarget, scale: Value<'k, f32>) -> Self {
        let pair = |values: &[f32]| pack(target, [values[0], values[1]].map(|value| scale * value));
        let pairs: Vec<_> = NF4_VALUES.chunks_exact(2).map(pair).collect();
        let plane = |selector: u32| {
            [0, 2, 4, 6].map(|first| pairs[first].permute(pairs[first + 1], selector))
        };
        Self { bytes: [plane(0x6420), plane(0x7531)] }
    }

    /// The values of eight codes, two in a word, in the order of the elements.
    pub(super) fn words(&self, codes: Value<'k, u32>) -> [Value<'k, u32>; 4] {
        // Digits of a selector: the lower three bits of a code choose among eight bytes, and the
        // upper one, moved to where it means 4, chooses between what two choices have brought to
        // the same place.
        let lower = codes & 0x7777_7777;
        let upper = ((codes >> 1) & 0x4444_4444) | 0x3210_3210;
        let [first, second] = [0, 16].map(|half| {
            let (lower, upper) = (lower >> half, upper >> half);
            let [low, high] = self
                .bytes
                .map(|[a, b, c, d]| a.permute(b, lower).permute(c.permute(d, lower), upper));
            // The first of two codes lies in the upper half of its byte.
            [low.permute(high, 0x4051), low.permute(high, 0x6273)]
        });
        [first[0], first[1], second[0], second[1]]
    }
}
