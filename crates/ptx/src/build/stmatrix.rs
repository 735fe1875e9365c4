//! Stores of matrices from the registers of a warp to shared memory (`stmatrix`).

use super::kernel::{Emit, Kernel};
use super::scalar::Scalar;
use super::shared::Shared;
use super::value::Value;
use crate::ast::{Modifier, Opcode, Operand, Type};

impl<'k> Kernel<'k> {
    /// Stores one matrix of 8 × 8 elements of 16 bits (`stmatrix.x1`); see
    /// [`Kernel::stmatrix_x4`].
    #[track_caller]
    pub fn stmatrix_x1<T: Scalar>(&self, row: Shared<'k, T>, values: [Value<'k, u32>; 1]) {
        self.stmatrix(row, &values, false);
    }

    /// Stores two matrices (`stmatrix.x2`); see [`Kernel::stmatrix_x4`].
    #[track_caller]
    pub fn stmatrix_x2<T: Scalar>(&self, row: Shared<'k, T>, values: [Value<'k, u32>; 2]) {
        self.stmatrix(row, &values, false);
    }

    /// Stores four matrices of 8 × 8 elements of 16 bits, one from each register (`stmatrix.x4`).
    /// Lanes 8·i to 8·i + 7 of the warp pass the addresses of the rows of matrix i, each a multiple
    /// of 16. A lane holds elements 2·(lane mod 4) and 2·(lane mod 4) + 1 of row lane ÷ 4. Every
    /// lane of the warp must execute it. Needs sm_90.
    #[track_caller]
    pub fn stmatrix_x4<T: Scalar>(&self, row: Shared<'k, T>, values: [Value<'k, u32>; 4]) {
        self.stmatrix(row, &values, false);
    }

    /// As [`Kernel::stmatrix_x4`], but the lanes hold columns of the matrices
    /// (`stmatrix.x4.trans`).
    #[track_caller]
    pub fn stmatrix_x4_trans<T: Scalar>(&self, row: Shared<'k, T>, values: [Value<'k, u32>; 4]) {
        self.stmatrix(row, &values, true);
    }

    #[track_caller]
    fn stmatrix<T: Scalar>(&self, row: Shared<'k, T>, values: &[Value<'k, u32>], transposed: bool) {
        let count = match values.len() {
            1 => Modifier::X1,
            2 => Modifier::X2,
            _ => Modifier::X4,
        };
        let mut modifiers = vec![Modifier::Sync, Modifier::Aligned, Modifier::M8n8, count];
        modifiers.extend(transposed.then_some(Modifier::Trans));
        modifiers.push(Modifier::Shared);
        let values = values.iter().map(|value| Operand::Register(value.register())).collect();
        let operands = vec![Operand::Address(row.location().address), Operand::Vector(values)];
        let (modifiers, types) = (&modifiers[..], &[Type::B16]);
        self.emit(Emit { opcode: Opcode::Stmatrix, modifiers, types, operands });
    }
}
