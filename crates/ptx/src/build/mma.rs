//! Warp-level matrix multiply-accumulate (`mma`) and its shared-memory loads (`ldmatrix`).

use super::kernel::{Emit, Kernel};
use super::shared::Shared;
use super::value::Value;
use super::var::Var;
use crate::ast::{Modifier, Opcode, Operand, Type};

impl<'k> Kernel<'k> {
    /// Computes `acc += a · b` for 16 × 16 bf16 elements of a and 16 × 8 of b, two per register
    /// (`mma.m16n8k16`). Every lane of the warp must execute it. Needs sm_80.
    ///
    /// With group = lane ÷ 4 and member = lane mod 4, a lane holds
    /// - of a: columns 2·member and 2·member + 1 of rows group and group + 8, then the same rows 8
    ///   columns further;
    /// - of b: rows 2·member and 2·member + 1 of column group, then 8 rows further;
    /// - of the accumulator: columns 2·member and 2·member + 1 of row group, then of row
    ///   group + 8.
    #[track_caller]
    pub fn mma_m16n8k16_bf16(
        &self,
        a: [Value<'k, u32>; 4],
        b: [Value<'k, u32>; 2],
        acc: [Var<'k, f32>; 4],
    ) {
        self.mma(Modifier::M16n8k16, Type::Bf16, &a, &b, acc);
    }

    /// Computes `acc += a · b` for 16 × 8 tf32 elements of a and 8 × 8 of b (`mma.m16n8k8`). The
    /// hardware ignores the lowest 13 bits of each operand. Every lane of the warp must execute
    /// it. Needs sm_80.
    ///
    /// With group = lane ÷ 4 and member = lane mod 4, a lane holds
    /// - of a: column member of rows group and group + 8, then the same rows 4 columns further;
    /// - of b: rows member and member + 4 of column group;
    /// - of the accumulator: the elements of [`Kernel::mma_m16n8k16_bf16`].
    #[track_caller]
    pub fn mma_m16n8k8_tf32(
        &self,
        a: [Value<'k, u32>; 4],
        b: [Value<'k, u32>; 2],
        acc: [Var<'k, f32>; 4],
    ) {
        self.mma(Modifier::M16n8k8, Type::Tf32, &a, &b, acc);
    }

    #[track_caller]
    fn mma(
        &self,
        shape: Modifier,
        ty: Type,
        a: &[Value<'k, u32>],
        b: &[Value<'k, u32>],
        acc: [Var<'k, f32>; 4],
    ) {
        let results = [(); 4].map(|()| self.register(Type::F32));
        let vector = |values: &[Value<'k, u32>]| {
            Operand::Vector(values.iter().map(|v| Operand::Register(v.register())).collect())
        };
        let operands = vec![
            Operand::Vector(results.map(Operand::Register).to_vec()),
            vector(a),
            vector(b),
            Operand::Vector(acc.map(|acc| Operand::Register(acc.get().register())).to_vec()),
        ];
        let modifiers = &[Modifier::Sync, Modifier::Aligned, shape, Modifier::RowCol];
        let types = &[Type::F32, ty, ty, Type::F32];
        self.emit(Emit { opcode: Opcode::Mma, modifiers, types, operands });
        for (acc, result) in acc.into_iter().zip(results) {
            acc.set(Value::from_register(*self, result));
        }
    }
}

impl<'k> Shared<'k, u32> {
    /// Loads four 8 × 8 matrices of 16-bit elements, one per register (`ldmatrix.x4`). Every lane
    /// of the warp must execute it.
    ///
    /// Lanes 8·i to 8·i + 7 pass the addresses of the rows of matrix i, each a multiple of 16. A
    /// lane receives elements 2·(lane mod 4) and 2·(lane mod 4) + 1 of row lane ÷ 4, or of column
    /// lane ÷ 4 if `transposed` (`.trans`).
    #[track_caller]
    pub fn ldmatrix_x4(self, transposed: bool) -> [Value<'k, u32>; 4] {
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
