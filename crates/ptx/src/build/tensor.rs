//! Tensor cores and what feeds them: products of bf16 and tf32 matrices, matrices from shared
//! memory, and values of less than 32 bits.

use super::kernel::{Emit, Kernel};
use super::pointer::Ptr;
use super::scalar::Scalar;
use super::shared::Shared;
use super::value::Value;
use super::var::Var;
use crate::ast::{Address, AddressBase, Modifier, Opcode, Operand, Type};

impl<'k> Kernel<'k> {
    /// `sums += a · b`, for 16 × 16 elements of a and 16 × 8 of b, which are pairs of bf16
    /// (`mma.m16n8k16`). Every lane of the warp must take part; sm_80 and later.
    ///
    /// With group = lane ÷ 4 and member = lane mod 4, a lane holds of a the columns 2·member and
    /// 2·member + 1 of the rows group and group + 8, and then the same 8 columns further; of b the
    /// rows 2·member and 2·member + 1 of column group, and 8 rows further; of the sums the columns
    /// 2·member and 2·member + 1 of row group, and of row group + 8.
    #[track_caller]
    pub fn multiply_bf16(
        &self,
        a: [Value<'k, u32>; 4],
        b: [Value<'k, u32>; 2],
        sums: [Var<'k, f32>; 4],
    ) {
        self.multiply((Modifier::M16n8k16, Type::Bf16), [a.as_slice(), &b], sums);
    }

    /// `sums += a · b`, for 16 × 8 elements of a and 8 × 8 of b, of whose bits as f32 the lowest 13
    /// are ignored (`mma.m16n8k8` of tf32). Every lane of the warp must take part; sm_80 and later.
    ///
    /// With group = lane ÷ 4 and member = lane mod 4, a lane holds of a column member of the rows
    /// group and group + 8, and then the same 4 columns further; of b the rows member and
    /// member + 4 of column group; of the sums what it holds in [`Kernel::multiply_bf16`].
    #[track_caller]
    pub fn multiply_tf32(
        &self,
        a: [Value<'k, u32>; 4],
        b: [Value<'k, u32>; 2],
        sums: [Var<'k, f32>; 4],
    ) {
        self.multiply((Modifier::M16n8k8, Type::Tf32), [a.as_slice(), &b], sums);
    }

    #[track_caller]
    fn multiply(
        &self,
        (shape, ty): (Modifier, Type),
        [a, b]: [&[Value<'k, u32>]; 2],
        sums: [Var<'k, f32>; 4],
    ) {
        let results = [(); 4].map(|()| self.register(Type::F32));
        let vector = |values: &[Value<'k, u32>]| {
            Operand::Vector(values.iter().map(|v| Operand::Register(v.register())).collect())
        };
        let operands = vec![
            Operand::Vector(results.map(Operand::Register).to_vec()),
            vector(a),
            vector(b),
            Operand::Vector(sums.map(|sum| Operand::Register(sum.get().register())).to_vec()),
        ];
        let modifiers = &[Modifier::Sync, Modifier::Aligned, shape, Modifier::RowCol];
        let types = &[Type::F32, ty, ty, Type::F32];
        self.emit(Emit { opcode: Opcode::Mma, modifiers, types, operands });
        for (sum, result) in sums.into_iter().zip(results) {
            sum.set(Value::from_register(*self, result));
        }
    }
}

impl<'k> Shared<'k, u32> {
    /// Loads four matrices of 8 × 8 elements of 16 bits (`ldmatrix.x4`), one into each register.
    /// Lanes 8·i to 8·i + 7 of the warp give the places of the rows of matrix i, 16 bytes each and
    /// aligned to that. A lane gets the elements 2·(lane mod 4) and the next of row lane ÷ 4, or
    /// of column lane ÷ 4 where `transposed`. Every lane of the warp must take part.
    #[track_caller]
    pub fn load_matrices(self, transposed: bool) -> [Value<'k, u32>; 4] {
        let location = self.location();
        let registers = [(); 4].map(|()| location.kernel.register(Type::U32));
        let mut modifiers = vec![Modifier::Sync, Modifier::Aligned, Modifier::M8n8, Modifier::X4];
        modifiers.extend(transposed.then_some(Modifier::Trans));
        modifiers.push(Modifier::Shared);
        let operands = vec![
            Operand::Vector(registers.map(Operand::Register).to_vec()),
            Operand::Address(location.address),
        ];
        let types = &[Type::B16];
        location.kernel.emit(Emit {
            opcode: Opcode::Ldmatrix,
            modifiers: &modifiers,
            types,
            operands,
        });
        registers.map(|register| Value::from_register(location.kernel, register))
    }
}

impl<'k> Value<'k, f32> {
    /// Two values as bf16, each rounded to the nearest, ties to even: this one in the lower half,
    /// `upper` in the upper one. sm_80 and later.
    #[track_caller]
    pub fn pack_bf16(self, upper: Self) -> Value<'k, u32> {
        let kernel = self.kernel();
        let operands =
            vec![Operand::Register(upper.register()), Operand::Register(self.register())];
        let (modifiers, types) = (&[Modifier::Rn], &[Type::Bf16x2, Type::F32]);
        let emit = Emit { opcode: Opcode::Cvt, modifiers, types, operands };
        Value::from_register(kernel, kernel.compute(Type::U32, emit))
    }
}

impl<'k, T: Scalar> Ptr<'k, T> {
    /// Loads the unsigned 8-bit number at `index`.
    #[track_caller]
    pub fn load_u8(self, index: Value<'k, u32>) -> Value<'k, u32> {
        self.load_narrow(Type::U8, index.cast())
    }

    /// Loads the unsigned 16-bit number at `index`.
    #[track_caller]
    pub fn load_u16(self, index: Value<'k, u32>) -> Value<'k, u32> {
        self.load_narrow(Type::U16, index.mul_wide(2))
    }

    /// Stores the lower 16 bits of `value` `index` such numbers further.
    #[track_caller]
    pub fn store_u16(self, index: Value<'k, u32>, value: Value<'k, u32>) {
        let kernel = self.kernel();
        let base = (self.address() + index.mul_wide(2)).register();
        let address = Address { base: AddressBase::Register(base), offset: 0 };
        let operands = vec![Operand::Address(address), Operand::Register(value.register())];
        let modifiers = &[Modifier::Global];
        kernel.emit(Emit { opcode: Opcode::St, modifiers, types: &[Type::U16], operands });
    }

    #[track_caller]
    fn load_narrow(self, ty: Type, bytes: Value<'k, u64>) -> Value<'k, u32> {
        let kernel = self.kernel();
        let base = (self.address() + bytes).register();
        let address = Address { base: AddressBase::Register(base), offset: 0 };
        let operands = vec![Operand::Address(address)];
        let modifiers = &[Modifier::Global];
        let emit = Emit { opcode: Opcode::Ld, modifiers, types: &[ty], operands };
        Value::from_register(kernel, kernel.compute(Type::U32, emit))
    }
}
