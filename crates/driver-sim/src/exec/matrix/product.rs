//! d = a · b + c.
//!
//! Products of 16-bit and TF32 floats are exact in `f64`, and so are sums whose parts are near each
//! other; everything is added there, in the order of k, and rounded once. Hardware adds in another
//! order and cuts off bits on the way, of which it promises nothing, so that results agree wherever
//! all partial sums are exact in the type of d and may differ in the last bits elsewhere.

use super::{File, Matrix, Role, Size};
use crate::exec::float::{canonical, canonical64};
use crate::exec::program::LANES;
use crate::exec::rounding::{Format, Rounding};
use crate::exec::vector::Lanes;

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
    /// How many registers d, a, b and c have.
    pub(in crate::exec) counts: [usize; 4],
    /// Whether integers out of range become the nearest in range.
    pub(in crate::exec) saturates: bool,
}

/// The most elements that a matrix has: 16 × 32.
const MOST: usize = 512;

/// Executes a product in all lanes.
///
/// # Safety
///
/// The instruction must come from decoding, and the file be that of a warp of its program.
#[inline(always)]
pub(in crate::exec) unsafe fn multiply(file: File, matrix: &Matrix, product: &Product) {
    // SAFETY: by the contract.
    unsafe {
        match product.elements[2] {
            Element::S32 => integers(file, matrix, product),
            Element::F64 => doubles(file, matrix, product),
            _ => floats(file, matrix, product),
        }
    }
}

/// Where the slots of an operand start, in the order d, a, b, c.
fn start(product: &Product, operand: usize) -> usize {
    product.counts[..operand].iter().sum()
}

/// Calls `each` with the register, the lane and the place of every element of an operand.
#[inline(always)]
fn visit(
    product: &Product,
    (role, element, count): (Role, Element, usize),
    mut each: impl FnMut((usize, usize), usize, usize),
) {
    let (_, columns) = product.size.of(role);
    let parts = element.parts();
    for index in 0..count {
        for lane in 0..LANES {
            for part in 0..parts {
                let (row, column) = product.size.place(role, (index, parts, part), lane);
                each((index, part), lane, row * columns + column);
            }
        }
    }
}

/// The value of one half, without branches.
#[inline(always)]
fn of_half(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // 2^112 makes up for the difference of the biases, for subnormals too.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = 0x7f80_0000 | magnitude << 13;
    let bits_of = if magnitude >= 0x7c00 { special } else { scaled.to_bits() };
    f32::from_bits(bits_of | (bits & 0x8000) << 16)
}

/// The value of the part of a register.
#[inline(always)]
fn value(element: Element, word: u32, part: usize) -> f64 {
    f64::from(match element {
        Element::F16 => of_half(word >> (16 * part) & 0xffff),
        Element::Bf16 => f32::from_bits(word >> (16 * part) << 16),
        Element::Tf32 => f32::from_bits(word & 0xffff_e000),
        _ => f32::from_bits(word),
    })
}

/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn registers<T: Copy + Default>(
    file: File,
    (matrix, product): (&Matrix, &Product),
    operand: usize,
) -> [Lanes<T>; 8] {
    let mut all = [[T::default(); LANES]; 8];
    let start = start(product, operand);
    for (index, lanes) in all.iter_mut().enumerate().take(product.counts[operand]) {
        // SAFETY: by the contract.
        *lanes = unsafe { file.read::<T>(matrix.slots[start + index]) };
    }
    all
}

/// One operand as a matrix of `f64`, row by row.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn gather(
    file: File,
    (matrix, product): (&Matrix, &Product),
    (role, operand, element): (Role, usize, Element),
) -> [f64; MOST] {
    // SAFETY: by the contract.
    let words = unsafe { registers::<u32>(file, (matrix, product), operand) };
    let mut out = [0.0; MOST];
    // A fragment may hold elements twice; what it holds first is enough.
    let (rows, columns) = product.size.of(role);
    let enough = (rows * columns).div_ceil(LANES * element.parts());
    let count = product.counts[operand].min(enough);
    visit(product, (role, element, count), |(index, part), lane, at| {
        out[at] = value(element, words[index][lane], part);
    });
    out
}

/// `sums += a · b`, one step of k after the other.
#[inline(always)]
fn accumulate<T: Copy>(
    size: Size,
    (a, b): (&[T; MOST], &[T; MOST]),
    sums: &mut [T; MOST],
    step: impl Fn(T, T, T) -> T,
) {
    let Size { m, n, k } = size;
    for row in 0..m {
        for block in (0..n).step_by(8) {
            let mut line: [T; 8] = std::array::from_fn(|i| sums[row * n + block + i]);
            for depth in 0..k {
                let left = a[row * k + depth];
                for (i, sum) in line.iter_mut().enumerate() {
                    *sum = step(left, b[depth * n + block + i], *sum);
                }
            }
            sums[row * n + block..][..8].copy_from_slice(&line);
        }
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn floats(file: File, matrix: &Matrix, product: &Product) {
    let [a, b, c, d] = product.elements;
    let both = (matrix, product);
    // SAFETY: by the contract.
    unsafe {
        let left = gather(file, both, (Role::A, 1, a));
        let right = gather(file, both, (Role::B, 2, b));
        let mut sums = gather(file, both, (Role::C, 3, c));
        // The product is exact, so that this is a fused step on every host.
        accumulate(product.size, (&left, &right), &mut sums, |x, y, sum| x * y + sum);
        let mut out = [[0u32; LANES]; 8];
        visit(product, (Role::C, d, product.counts[0]), |(index, part), lane, at| {
            let bits = match d {
                Element::F16 => Format::F16.narrow(sums[at], Rounding::Nearest),
                _ => canonical(sums[at] as f32),
            };
            out[index][lane] |= bits << (16 * part);
        });
        for (index, lanes) in out.into_iter().enumerate().take(product.counts[0]) {
            file.write(matrix.slots[index], lanes);
        }
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn doubles(file: File, matrix: &Matrix, product: &Product) {
    let both = (matrix, product);
    let operands = [(Role::A, 1), (Role::B, 2), (Role::C, 3)].map(|(role, operand)| {
        // SAFETY: by the contract.
        let lanes = unsafe { registers::<u64>(file, both, operand) };
        let mut out = [0.0; MOST];
        let count = product.counts[operand];
        visit(product, (role, Element::F64, count), |(index, _), lane, at| {
            out[at] = f64::from_bits(lanes[index][lane]);
        });
        out
    });
    let [left, right, mut sums] = operands;
    accumulate(product.size, (&left, &right), &mut sums, f64::mul_add);
    let mut out = [[0u64; LANES]; 8];
    visit(product, (Role::C, Element::F64, product.counts[0]), |(index, _), lane, at| {
        out[index][lane] = canonical64(sums[at]);
    });
    for (index, lanes) in out.into_iter().enumerate().take(product.counts[0]) {
        // SAFETY: by the contract.
        unsafe { file.write(matrix.slots[index], lanes) };
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn integers(file: File, matrix: &Matrix, product: &Product) {
    let both = (matrix, product);
    let elements = product.elements;
    let operands = [(Role::A, 1), (Role::B, 2), (Role::C, 3)].map(|(role, operand)| {
        // SAFETY: by the contract.
        let words = unsafe { registers::<u32>(file, both, operand) };
        let element = elements[operand - 1];
        let mut out = [0i64; MOST];
        let count = product.counts[operand];
        visit(product, (role, element, count), |(index, part), lane, at| {
            let word = words[index][lane];
            let byte = (word >> (8 * part)) as u8;
            out[at] = match element {
                Element::U8 => i64::from(byte),
                Element::S8 => i64::from(byte as i8),
                _ => i64::from(word as i32),
            };
        });
        out
    });
    let [left, right, mut sums] = operands;
    accumulate(product.size, (&left, &right), &mut sums, |x, y, sum| x * y + sum);
    let mut out = [[0u32; LANES]; 8];
    visit(product, (Role::C, Element::S32, product.counts[0]), |(index, _), lane, at| {
        let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
        let sum = if product.saturates { sums[at].clamp(low, high) } else { sums[at] };
        out[index][lane] = sum as u32;
    });
    for (index, lanes) in out.into_iter().enumerate().take(product.counts[0]) {
        // SAFETY: by the contract.
        unsafe { file.write(matrix.slots[index], lanes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_the_values_that_their_format_says() {
        for bits in 0..=0xffffu32 {
            let (fast, slow) = (f64::from(of_half(bits)), Format::F16.widen(bits));
            assert!(fast == slow || fast.is_nan() && slow.is_nan(), "{bits:#x}");
            assert_eq!(fast.is_sign_negative(), bits >> 15 == 1);
        }
    }
}
