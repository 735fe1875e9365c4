//! NF4 operands: their scales, which may themselves be quantized, and dequantization.

use retrograph_kernel_abi::gemm::Nf4ScaleParameters;
use retrograph_kernel_abi::nf4::{BLOCK, BYTE_VALUES, CODE_VALUES, NESTED_BLOCK, Nf4Scales};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::bf16::pack;
use super::parameters::Declarations;

/// The scales of an NF4 operand, and its lookup tables in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Nf4<'k> {
    kernel: Kernel<'k>,
    /// One f32 per block, or one byte if `nested` is not null.
    absmax: Ptr<'k, f32>,
    /// Scales of the scales, or null.
    nested: Ptr<'k, f32>,
    /// The 256 values of a byte scale.
    byte_values: Ptr<'k, f32>,
    /// Added to each nested scale.
    offset: Ptr<'k, f32>,
    /// The values of the codes, then the byte values of each operand.
    tables: Shared<'k, f32>,
    /// Index of this operand's byte values in the tables.
    byte_table: Value<'k, u32>,
}

impl<'k> Nf4<'k> {
    /// Declares the parameters of operand b of a GEMM, and the tables.
    pub(crate) fn declare(k: &Kernel<'k>) -> Self {
        let tables = Self::tables(k, 1);
        let Nf4ScaleParameters { b_absmax, b_nested, b_map, b_offset } =
            Nf4ScaleParameters::declare(&mut Declarations(*k));
        let scales = Nf4Scales { absmax: b_absmax, nested: b_nested, map: b_map, offset: b_offset };
        Self::new(k, scales, 0, tables)
    }

    /// Operand number `index`, which shares its tables with others.
    pub(crate) fn new(
        k: &Kernel<'k>,
        scales: Nf4Scales<Declarations<'k>>,
        index: u32,
        tables: Shared<'k, f32>,
    ) -> Self {
        let Nf4Scales { absmax, nested, map: byte_values, offset } = scales;
        let byte_table = k.constant(CODE_VALUES.len() as u32 + index * BYTE_VALUES);
        let absmax = absmax.reinterpret();
        Self { kernel: *k, absmax, nested, byte_values, offset, tables, byte_table }
    }

    /// Declares tables for `operands` operands.
    pub(crate) fn tables(k: &Kernel<'k>, operands: u32) -> Shared<'k, f32> {
        k.shared::<f32>("tables", CODE_VALUES.len() + (operands * BYTE_VALUES) as usize)
    }

    /// This operand if `condition` holds, else `other`.
    pub(crate) fn select(self, condition: Pred<'k>, other: Self) -> Self {
        let select_ptr = |one: Ptr<'k, f32>, other: Ptr<'k, f32>| {
            Ptr::from_address(condition.select(one.address(), other.address()))
        };
        Self {
            absmax: select_ptr(self.absmax, other.absmax),
            nested: select_ptr(self.nested, other.nested),
            byte_values: select_ptr(self.byte_values, other.byte_values),
            offset: select_ptr(self.offset, other.offset),
            byte_table: condition.select(self.byte_table, other.byte_table),
            ..self
        }
    }

    /// Fills the tables. All threads of the block must call it.
    pub(crate) fn fill_tables(&self) {
        Self::fill_all_tables(&[*self]);
    }

    /// Fills the tables that several operands share. All threads of the block must call it.
    pub(crate) fn fill_all_tables(operands: &[Self]) {
        let Self { kernel: k, tables, .. } = operands[0];
        let codes = CODE_VALUES.len() as u32;
        k.when(k.tid_x().lt(codes), || {
            let value = (0..).zip(CODE_VALUES).fold(k.constant(0.0), |found, (code, &value)| {
                k.tid_x().eq(code).select(k.constant(value), found)
            });
            tables.store(k.tid_x(), value);
        });
        for (index, operand) in (0..).zip(operands) {
            let byte_table = tables.offset((codes + index * BYTE_VALUES).into());
            k.when(!operand.nested.is_null(), || {
                k.range(k.tid_x(), BYTE_VALUES, k.ntid_x(), |code| {
                    byte_table.store(code, operand.byte_values.load(code));
                });
            });
        }
        k.barrier();
    }

    /// Starts loading the scale of the block of element `index`.
    pub(crate) fn fetch(&self, index: Value<'k, u32>, [scale, nested]: [Var<'k, f32>; 2]) {
        let block = index >> BLOCK.ilog2();
        self.kernel.when_else(
            self.nested.is_null(),
            || scale.set(self.absmax.load(block)),
            || {
                scale.set(Value::<f32>::from_bits(self.absmax.load_u8(block)));
                nested.set(self.nested.load(block >> NESTED_BLOCK.ilog2()));
            },
        );
    }

    /// Loads the offset of nested scales; 0 if they are not nested.
    pub(crate) fn offset(&self) -> Value<'k, f32> {
        let offset = self.kernel.var(0.0f32);
        self.kernel.when(!self.nested.is_null(), || offset.set(self.offset.load(0)));
        offset.get()
    }

    /// The value of a loaded scale.
    pub(crate) fn scale(&self, loaded: [Value<'k, f32>; 2]) -> Value<'k, f32> {
        self.scale_with(loaded, || self.offset.load(0))
    }

    /// The value of a loaded scale; a nested one takes a product and a sum, each rounded.
    pub(crate) fn scale_with(
        &self,
        [scale, nested]: [Value<'k, f32>; 2],
        offset: impl FnOnce() -> Value<'k, f32>,
    ) -> Value<'k, f32> {
        let k = self.kernel;
        let result = k.var(scale);
        k.when(!self.nested.is_null(), || {
            let (byte, tables) = (scale.bits(), self.tables);
            let value = match self.byte_table.known() {
                Some(first) => tables.offset(first.into()).load(byte),
                None => tables.load(byte + self.byte_table),
            };
            result.set(value * nested + offset());
        });
        result.get()
    }

    /// The value of element `element` of a word of codes. The first of two codes is in the upper
    /// half of its byte.
    pub(crate) fn value(&self, word: Value<'k, u32>, element: u32) -> Value<'k, f32> {
        let shift = element / 2 * 8 + if element.is_multiple_of(2) { 4 } else { 0 };
        self.tables.load((word >> shift) & 15)
    }
}

/// The 16 scaled values of one block, rounded to bf16, in registers. Lookups by `prmt` need no
/// memory access. The cost of the table does not depend on the number of codes.
pub(crate) struct Bf16Table<'k> {
    /// The lower bytes of the 16 values, and the upper bytes, four per word.
    bytes: [[Value<'k, u32>; 4]; 2],
}

impl<'k> Bf16Table<'k> {
    /// Scales the 16 values: a product rounded to f32, then to bf16.
    pub(crate) fn new(target: SmTarget, scale: Value<'k, f32>) -> Self {
        let pair = |values: &[f32]| pack(target, [values[0], values[1]].map(|value| scale * value));
        let pairs: Vec<_> = CODE_VALUES.chunks_exact(2).map(pair).collect();
        let byte_plane =
            |selector: u32| [0, 2, 4, 6].map(|first| pairs[first].prmt(pairs[first + 1], selector));
        Self { bytes: [byte_plane(0x6420), byte_plane(0x7531)] }
    }

    /// Decodes eight codes to bf16, two per word, in element order.
    pub(crate) fn decode(&self, codes: Value<'k, u32>) -> [Value<'k, u32>; 4] {
        // Selectors of `prmt`: the lower three bits of a code select one of eight bytes. The upper
        // bit, moved to the value 4, selects between the results of two such lookups.
        let lower = codes & 0x7777_7777;
        let upper = ((codes >> 1) & 0x4444_4444) | 0x3210_3210;
        let [first, second] = [0, 16].map(|half| {
            let (lower, upper) = (lower >> half, upper >> half);
            let [low, high] =
                self.bytes.map(|[a, b, c, d]| a.prmt(b, lower).prmt(c.prmt(d, lower), upper));
            // The first of two codes is in the upper half of its byte.
            [low.prmt(high, 0x4051), low.prmt(high, 0x6273)]
        });
        [first[0], first[1], second[0], second[1]]
    }
}
