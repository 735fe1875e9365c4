//! Operands in NF4: their scales, which can be quantized in turn, and the values of their codes.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use crate::primitives::bf16::pack;

/// Elements of a block of NF4, which share a scale.
const NF4_BLOCK: u32 = 64;
/// Scales of a block of the second quantization.
const NESTED_BLOCK: u32 = 256;
/// What a byte can be.
const BYTES: u32 = 256;

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
    /// The values of codes, and then those of the bytes of each operand.
    tables: Shared<'k, f32>,
    /// Where those of this operand begin.
    bytes: Value<'k, u32>,
}

impl<'k> Nf4<'k> {
    /// Declares the parameters of the scales, and the tables.
    pub(crate) fn declare(k: &Kernel<'k>) -> Self {
        Self::named(k, ("b", 0), Self::tables(k, 1))
    }

    /// Declares those of an operand that shares its tables with others. Each has a map of its own.
    pub(crate) fn named(
        k: &Kernel<'k>,
        (name, number): (&str, u32),
        tables: Shared<'k, f32>,
    ) -> Self {
        let pointers = ["absmax", "nested", "map", "offset"];
        let [absmax, nested, map, offset] =
            pointers.map(|part| k.pointer::<f32>(&format!("{name}_{part}")));
        let bytes = k.constant(NF4_VALUES.len() as u32 + number * BYTES);
        Self { kernel: *k, absmax, nested, map, offset, tables, bytes }
    }

    /// The tables of `operands` operands.
    pub(crate) fn tables(k: &Kernel<'k>, operands: u32) -> Shared<'k, f32> {
        k.shared::<f32>("tables", NF4_VALUES.len() + (operands * BYTES) as usize)
    }

    /// The scales of this operand where `condition` is true, and those of `other` elsewhere.
    pub(crate) fn select(self, condition: Pred<'k>, other: Self) -> Self {
        let pick = |one: Ptr<'k, f32>, other: Ptr<'k, f32>| {
            Ptr::from_address(condition.select(one.address(), other.address()))
        };
        Self {
            absmax: pick(self.absmax, other.absmax),
            nested: pick(self.nested, other.nested),
            map: pick(self.map, other.map),
            offset: pick(self.offset, other.offset),
            bytes: condition.select(self.bytes, other.bytes),
            ..self
        }
    }

    /// Fills the tables, by all threads of the block.
    pub(crate) fn fill_tables(&self) {
        Self::fill_each(&[*self]);
    }

    /// Fills the tables of operands that share them, by all threads of the block.
    pub(crate) fn fill_each(operands: &[Self]) {
        let Self { kernel: k, tables, .. } = operands[0];
        let codes = NF4_VALUES.len() as u32;
        k.when(k.tid_x().lt(codes), || {
            let value = (0..).zip(NF4_VALUES).fold(k.constant(0.0), |found, (code, value)| {
                k.tid_x().eq(code).select(k.constant(value), found)
            });
            tables.store(k.tid_x(), value);
        });
        for (number, operand) in (0..).zip(operands) {
            let bytes = tables.offset((codes + number * BYTES).into());
            k.when(!operand.nested.is_null(), || {
                k.range(k.tid_x(), BYTES, k.ntid_x(), |code| {
                    bytes.store(code, operand.map.load(code));
                });
            });
        }
        k.barrier();
    }

    /// Starts loading the scale of the block of element `index`.
    pub(crate) fn fetch(&self, index: Value<'k, u32>, [scale, nested]: [Var<'k, f32>; 2]) {
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

    /// What is added to nested scales, loaded ahead.
    pub(super) fn offset(&self) -> Value<'k, f32> {
        let offset = self.kernel.var(0.0f32);
        self.kernel.when(!self.nested.is_null(), || offset.set(self.offset.load(0)));
        offset.get()
    }

    /// The scale that was fetched.
    pub(crate) fn scale(&self, fetched: [Value<'k, f32>; 2]) -> Value<'k, f32> {
        self.scale_with(fetched, || self.offset.load(0))
    }

    /// The scale that was fetched: a product and a sum, each rounded, where it is nested.
    pub(super) fn scale_with(
        &self,
        [scale, nested]: [Value<'k, f32>; 2],
        offset: impl FnOnce() -> Value<'k, f32>,
    ) -> Value<'k, f32> {
        let k = self.kernel;
        let result = k.var(scale);
        k.when(!self.nested.is_null(), || {
            let (byte, tables) = (scale.bits(), self.tables);
            let value = match self.bytes.known() {
                Some(first) => tables.offset(first.into()).load(byte),
                None => tables.load(byte + self.bytes),
            };
            result.set(value * nested + offset());
        });
        result.get()
    }

    /// The value of element `element` of a word of codes: the first of two lies in the upper half
    /// of its byte.
    pub(crate) fn value(&self, word: Value<'k, u32>, element: u32) -> Value<'k, f32> {
        let shift = element / 2 * 8 + if element.is_multiple_of(2) { 4 } else { 0 };
        self.tables.load((word >> shift) & 15)
    }
}

/// What the codes of one block stand for, rounded to bf16: a table in registers, which costs no
/// access to memory and as much for 16 codes as for all of a block.
pub(super) struct Bf16Table<'k> {
    /// The lower bytes of the 16 values, and the upper ones, four in a word.
    bytes: [[Value<'k, u32>; 4]; 2],
}

impl<'k> Bf16Table<'k> {
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
    pub(super) fn decode(&self, codes: Value<'k, u32>) -> [Value<'k, u32>; 4] {
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
