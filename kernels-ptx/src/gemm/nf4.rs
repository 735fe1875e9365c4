//! Operands in NF4: their scales, which can be quantized in turn, and the values of their codes.

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
