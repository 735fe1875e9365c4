//! Matrix products: d = a · b + c.
//!
//! Products of 16-bit and TF32 floats are exact in `f64`, as are sums of values of similar
//! magnitude; they are added in the order of k and rounded once. Hardware guarantees neither the
//! order nor the precision of partial sums. Results agree if all partial sums are exact in the type
//! of d; otherwise the last bits may differ.

use super::{Matrix, Role, Size};
use crate::exec::double::fma_in;
use crate::exec::float::{canonical, canonical64};
use crate::exec::program::LANES;
use crate::exec::registers::{Offset, RegisterFile};
use crate::exec::rounding::{Format, Rounding};

/// The type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    U8,
    S8,
    S32,
}

impl Element {
    /// Elements in one register.
    fn parts(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::S8 => 4,
            _ => 1,
        }
    }
}

/// A product of matrices.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct Product {
    pub(in crate::exec) size: Size,
    /// The elements of a, b, c and d.
    pub(in crate::exec) elements: [Element; 4],
    /// Registers of d, a, b and c.
    pub(in crate::exec) counts: [usize; 4],
    /// The rounding of each step of an `f64` product.
    pub(in crate::exec) rounding: Rounding,
    /// Whether integers saturate.
    pub(in crate::exec) saturates: bool,
}

/// The maximum elements of a matrix: 16 × 32.
const MAX_ELEMENTS: usize = 512;

/// Executes a product in all lanes.
///
/// # Safety
///
/// The instruction must come from decoding, and the file must belong to a warp of its program.
#[inline(always)]
pub(in crate::exec) unsafe fn multiply(file: RegisterFile, matrix: &Matrix, product: &Product) {
    // SAFETY: by the contract.
    unsafe {
        match product.elements[2] {
            Element::S32 => integers(file, matrix, product),
            Element::F64 => doubles(file, matrix, product),
            _ => floats(file, matrix, product),
        }
    }
}

impl Product {
    /// For each operand (d, a, b, c), the matrix index of each element, by register, part of a
    /// register, and lane. Duplicates in a fragment are omitted.
    pub(in crate::exec) fn positions(&self) -> [Vec<u16>; 4] {
        let [a, b, c, d] = self.elements;
        let operands = [(Role::C, d), (Role::A, a), (Role::B, b), (Role::C, c)];
        let mut counts = self.counts.iter();
        operands.map(|(role, element)| {
            let (rows, columns) = self.size.of(role);
            let parts = element.parts();
            let enough = (rows * columns).div_ceil(LANES * parts);
            let count = counts.next().map_or(0, |&count| count.min(enough));
            let mut list = Vec::with_capacity(count * parts * LANES);
            for index in 0..count {
                for part in 0..parts {
                    list.extend((0..LANES).map(|lane| {
                        let (row, column) = self.size.position(role, (index, parts, part), lane);
                        (row * columns + column) as u16
                    }));
                }
            }
            list
        })
    }

    /// The registers of an operand, in the order d, a, b, c.
    #[inline(always)]
    fn registers<'a>(&self, matrix: &'a Matrix, operand: usize) -> &'a [Offset] {
        let start: usize = self.counts[..operand].iter().sum();
        &matrix.registers[start..start + self.counts[operand]]
    }
}

/// The value of an f16, without branches.
#[inline(always)]
fn of_half(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // 2^112 corrects the difference of the exponent biases, for subnormals too.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = 0x7f80_0000 | magnitude << 13;
    let bits_of = if magnitude >= 0x7c00 { special } else { scaled.to_bits() };
    f32::from_bits(bits_of | (bits & 0x8000) << 16)
}

/// Collects an operand as a row-major matrix.
///
/// # Safety
///
/// As for [`multiply`], with registers as wide as `R`.
#[inline(always)]
unsafe fn gather<R: Copy, T: Copy + Default>(
    file: RegisterFile,
    (matrix, product): (&Matrix, &Product),
    (operand, element): (usize, Element),
    value: impl Fn(R, usize) -> T,
) -> [T; MAX_ELEMENTS] {
    let mut out = [T::default(); MAX_ELEMENTS];
    let parts = element.parts();
    let positions = matrix.positions[operand].chunks_exact(LANES * parts);
    for (register, positions) in product.registers(matrix, operand).iter().zip(positions) {
        // SAFETY: by the contract.
        let lanes = unsafe { file.read::<R>(*register) };
        for (part, positions) in positions.chunks_exact(LANES).enumerate() {
            let mut values = [T::default(); LANES];
            for lane in 0..LANES {
                values[lane] = value(lanes[lane], part);
            }
            for (&position, value) in positions.iter().zip(values) {
                out[usize::from(position) % MAX_ELEMENTS] = value;
            }
        }
    }
    out
}

/// Writes the sums to d.
///
/// # Safety
///
/// As for [`gather`].
#[inline(always)]
unsafe fn scatter<R: Copy + Default, T: Copy>(
    file: RegisterFile,
    (matrix, product): (&Matrix, &Product),
    sums: &[T; MAX_ELEMENTS],
    add: impl Fn(R, T, usize) -> R,
) {
    let parts = product.elements[3].parts();
    let positions = matrix.positions[0].chunks_exact(LANES * parts);
    for (register, positions) in product.registers(matrix, 0).iter().zip(positions) {
        let mut lanes = [R::default(); LANES];
        for (part, positions) in positions.chunks_exact(LANES).enumerate() {
            for (lane, &position) in lanes.iter_mut().zip(positions) {
                *lane = add(*lane, sums[usize::from(position) % MAX_ELEMENTS], part);
            }
        }
        // SAFETY: by the contract.
        unsafe { file.write(*register, lanes) };
    }
}

/// `sums += a · b`, in the order of k.
#[inline(always)]
fn accumulate<T: Copy>(
    size: Size,
    (a, b): (&[T; MAX_ELEMENTS], &[T; MAX_ELEMENTS]),
    sums: &mut [T; MAX_ELEMENTS],
    step: impl Fn(T, T, T) -> T,
) {
    /// Rows processed together: their dependency chains are independent.
    const ROWS: usize = 4;
    let Size { m, n, k } = size;
    for row in (0..m).step_by(ROWS) {
        let left: [&[T]; ROWS] = std::array::from_fn(|i| &a[(row + i) * k..][..k]);
        for block in (0..n).step_by(8) {
            let at = |i: usize| (row + i) * n + block;
            let mut local: [[T; 8]; ROWS] =
                std::array::from_fn(|i| std::array::from_fn(|j| sums[at(i) + j]));
            for depth in 0..k {
                let right: [T; 8] = std::array::from_fn(|j| b[depth * n + block + j]);
                for (line, left) in local.iter_mut().zip(left) {
                    let left = left[depth];
                    for (sum, right) in line.iter_mut().zip(right) {
                        *sum = step(left, right, *sum);
                    }
                }
            }
            for (i, line) in local.iter().enumerate() {
                sums[at(i)..][..8].copy_from_slice(line);
            }
        }
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn floats(file: RegisterFile, matrix: &Matrix, product: &Product) {
    let [a, _, c, d] = product.elements;
    // One copy of the loop per format, so that each is vectorized.
    macro_rules! gathered {
        ($operand:literal, $element:expr) => {
            match $element {
                Element::F16 => gathered!($operand, Element::F16, |word: u32, part: usize| {
                    f64::from(of_half(word >> (16 * part) & 0xffff))
                }),
                Element::Bf16 => gathered!($operand, Element::Bf16, |word: u32, part: usize| {
                    f64::from(f32::from_bits(word >> (16 * part) << 16))
                }),
                Element::Tf32 => gathered!($operand, Element::Tf32, |word: u32, _: usize| {
                    f64::from(f32::from_bits(word & 0xffff_e000))
                }),
                _ => gathered!($operand, Element::F32, |word: u32, _: usize| {
                    f64::from(f32::from_bits(word))
                }),
            }
        };
        ($operand:literal, $element:expr, $value:expr) => {
            gather(file, (matrix, product), ($operand, $element), $value)
        };
    }
    // SAFETY: by the contract.
    unsafe {
        let (left, right) = (gathered!(1, a), gathered!(2, a));
        let mut sums = gathered!(3, c);
        // The product is exact, so this equals a fused multiply-add on every host.
        accumulate(product.size, (&left, &right), &mut sums, |x, y, sum| x * y + sum);
        if d == Element::F16 {
            scatter(file, (matrix, product), &sums, |word: u32, sum, part| {
                word | Format::F16.narrow(sum, Rounding::Nearest) << (16 * part)
            });
        } else {
            scatter(file, (matrix, product), &sums, |_: u32, sum, _| canonical(sum as f32));
        }
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn doubles(file: RegisterFile, matrix: &Matrix, product: &Product) {
    // SAFETY: by the contract.
    unsafe {
        let [left, right, mut sums] = [1, 2, 3].map(|operand| {
            let value = |bits: u64, _| f64::from_bits(bits);
            gather(file, (matrix, product), (operand, Element::F64), value)
        });
        let operands = (&left, &right);
        match product.rounding {
            Rounding::Nearest => accumulate(product.size, operands, &mut sums, f64::mul_add),
            mode => accumulate(product.size, operands, &mut sums, |x, y, sum| {
                f64::from_bits(fma_in(x, y, sum, mode))
            }),
        }
        scatter(file, (matrix, product), &sums, |_: u64, sum, _| canonical64(sum));
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn integers(file: RegisterFile, matrix: &Matrix, product: &Product) {
    // SAFETY: by the contract.
    unsafe {
        let [left, right, mut sums] = [1, 2, 3].map(|operand| {
            let element = product.elements[operand - 1];
            let value = |word: u32, part: usize| match (element, (word >> (8 * part)) as u8) {
                (Element::U8, byte) => i64::from(byte),
                (Element::S8, byte) => i64::from(byte as i8),
                _ => i64::from(word as i32),
            };
            gather(file, (matrix, product), (operand, element), value)
        });
        accumulate(product.size, (&left, &right), &mut sums, |x, y, sum| x * y + sum);
        scatter(file, (matrix, product), &sums, |_: u32, sum: i64, _| {
            let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
            (if product.saturates { sum.clamp(low, high) } else { sum }) as u32
        });
    }
}

#[cfg(test)]
mod tests;
