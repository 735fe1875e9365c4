//! Matrix products: d = a · b + c.
//!
//! Products of 16-bit and TF32 floats are exact in `f64`, as are sums of values of similar
//! magnitude; they are added in the order of k and rounded once. Hardware guarantees neither the
//! order nor the precision of partial sums. Results agree if all partial sums are exact in the type
//! of d; otherwise the last bits may differ.

use super::{Matrix, Role, Size};
use crate::double::fma_in;
use crate::float::{canonical, canonical64};
use crate::program::LANES;
use crate::registers::{Offset, RegisterFile};
use crate::rounding::{Format, Rounding};

/// The type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
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
pub(crate) struct Product {
    pub(crate) size: Size,
    /// The elements of a, b, c and d.
    pub(crate) elements: [Element; 4],
    /// Registers of d, a, b and c.
    pub(crate) counts: [usize; 4],
    /// The rounding of each step of an `f64` product.
    pub(crate) rounding: Rounding,
    /// Whether integers saturate.
    pub(crate) saturates: bool,
}

/// Rows and columns of a tile of sums. Each lane holds two adjacent elements of one row.
const TILE: usize = 8;
/// Elements of a column of the left factor that a register holds: one per lane of a group of four.
const GROUP: usize = 4;
/// The maximum number of tiles of sums: 16 × 16, 32 × 8 or 8 × 32 elements.
const MAX_TILES: usize = 4;
/// The maximum k.
const MAX_DEPTH: usize = 32;
/// Rows of a tile that are computed together: their dependency chains are independent.
const ROWS: usize = 4;

type Tile<T> = [[T; TILE]; TILE];

/// The operands of a product: the register file, and the registers of the instruction.
#[derive(Clone, Copy)]
struct Operands<'a> {
    file: RegisterFile,
    matrix: &'a Matrix,
    product: &'a Product,
}

/// Executes a product in all lanes.
///
/// # Safety
///
/// The instruction must come from decoding, and the file must belong to a warp of its program.
#[inline(always)]
pub(crate) unsafe fn multiply(file: RegisterFile, matrix: &Matrix, product: &Product) {
    let operands = Operands { file, matrix, product };
    // SAFETY: by the contract.
    unsafe {
        match (product.elements[2], product.elements[0]) {
            (Element::S32, _) => integers(operands),
            (Element::F64, _) => doubles(operands),
            // One copy of the loops per format, so that each is vectorized.
            (_, Element::F16) => {
                floats::<2>(operands, |word, part| f64::from(of_half(word >> (16 * part) & 0xffff)))
            }
            (_, Element::Bf16) => floats::<2>(operands, |word, part| {
                f64::from(f32::from_bits(word >> (16 * part) << 16))
            }),
            (_, _) => {
                floats::<1>(operands, |word, _| f64::from(f32::from_bits(word & 0xffff_e000)))
            }
        }
    }
}

impl Product {
    /// Whether there are enough registers for the elements of each operand. A fragment of `wmma`
    /// may have more, which hold elements twice.
    pub(crate) fn has_enough_registers(&self) -> bool {
        let [a, b, c, d] = self.elements;
        let operands = [(Role::C, d), (Role::A, a), (Role::B, b), (Role::C, c)];
        operands.into_iter().zip(self.counts).all(|((role, element), count)| {
            let (rows, columns) = self.size.of(role);
            count >= (rows * columns).div_ceil(LANES * element.parts())
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
pub(crate) fn of_half(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // 2^112 corrects the difference of the exponent biases, for subnormals too.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = 0x7f80_0000 | magnitude << 13;
    let bits_of = if magnitude >= 0x7c00 { special } else { scaled.to_bits() };
    f32::from_bits(bits_of | (bits & 0x8000) << 16)
}

/// `sums = a · b + sums`, in the order of k, with `PARTS` elements in a register of a and b.
///
/// `value` returns an element of operand 1 (a) or 2 (b): a part of a register.
///
/// # Safety
///
/// As for [`multiply`], with registers of a and b as wide as `R`.
#[inline(always)]
unsafe fn accumulate<R: Copy, T: Copy + Default, const PARTS: usize>(
    Operands { file, matrix, product }: Operands<'_>,
    value: impl Fn(usize, R, usize) -> T,
    step: impl Fn(T, T, T) -> T,
    sums: &mut [Tile<T>; MAX_TILES],
) {
    let (high, wide) = (product.size.m / TILE, product.size.n / TILE);
    let deep = product.size.k / (GROUP * PARTS);
    let (a, b) = (product.registers(matrix, 1), product.registers(matrix, 2));
    for column in 0..wide {
        let mut right = [[T::default(); TILE]; MAX_DEPTH];
        for depth in 0..deep {
            // SAFETY: by the contract.
            let lanes = unsafe { file.read::<R>(b[depth + deep * column]) };
            let right = &mut right[depth * GROUP * PARTS..][..GROUP * PARTS];
            for part in 0..PARTS {
                for lane in 0..LANES {
                    let line = lane % GROUP * PARTS + part;
                    right[line][lane / GROUP] = value(2, lanes[lane], part);
                }
            }
        }
        for row in 0..high {
            let sums = &mut sums[row + high * column];
            for depth in 0..deep {
                // SAFETY: by the contract.
                let lanes = unsafe { file.read::<R>(a[row + high * depth]) };
                let mut left = [[T::default(); LANES]; PARTS];
                for (part, left) in left.iter_mut().enumerate() {
                    for lane in 0..LANES {
                        left[lane] = value(1, lanes[lane], part);
                    }
                }
                accumulate_tile(&left, &right[depth * GROUP * PARTS..], sums, &step);
            }
        }
    }
}

/// `sums += left · right` for the steps of one register.
#[inline(always)]
fn accumulate_tile<T: Copy + Default, const PARTS: usize>(
    left: &[[T; LANES]; PARTS],
    right: &[[T; TILE]],
    sums: &mut Tile<T>,
    step: &impl Fn(T, T, T) -> T,
) {
    let right = &right[..GROUP * PARTS];
    for first in (0..TILE).step_by(ROWS) {
        let mut local = [[T::default(); TILE]; ROWS];
        local.copy_from_slice(&sums[first..first + ROWS]);
        for line in 0..GROUP * PARTS {
            for row in 0..ROWS {
                let left = left[line % PARTS][(first + row) * GROUP + line / PARTS];
                for column in 0..TILE {
                    local[row][column] = step(left, right[line][column], local[row][column]);
                }
            }
        }
        sums[first..first + ROWS].copy_from_slice(&local);
    }
}

/// Reads c, whose adjacent elements are in two registers.
///
/// # Safety
///
/// As for [`multiply`], with registers as wide as `R`.
#[inline(always)]
unsafe fn read_pairs<R: Copy, T: Copy + Default>(
    Operands { file, matrix, product }: Operands<'_>,
    value: impl Fn(R) -> T,
) -> [Tile<T>; MAX_TILES] {
    let mut tiles = [[[T::default(); TILE]; TILE]; MAX_TILES];
    let (pairs, _) = product.registers(matrix, 3).as_chunks::<2>();
    for (tile, pair) in tiles.iter_mut().zip(pairs) {
        for part in 0..2 {
            // SAFETY: by the contract.
            let lanes = unsafe { file.read::<R>(pair[part]) };
            for lane in 0..LANES {
                tile[lane / GROUP][lane % GROUP * 2 + part] = value(lanes[lane]);
            }
        }
    }
    tiles
}

/// Writes d, whose adjacent elements are in two registers.
///
/// # Safety
///
/// As for [`read_pairs`].
#[inline(always)]
unsafe fn write_pairs<R: Copy + Default, T: Copy>(
    Operands { file, matrix, product }: Operands<'_>,
    tiles: &[Tile<T>; MAX_TILES],
    bits: impl Fn(T) -> R,
) {
    let (pairs, _) = product.registers(matrix, 0).as_chunks::<2>();
    for (tile, pair) in tiles.iter().zip(pairs) {
        for part in 0..2 {
            let mut lanes = [R::default(); LANES];
            for lane in 0..LANES {
                lanes[lane] = bits(tile[lane / GROUP][lane % GROUP * 2 + part]);
            }
            // SAFETY: by the contract.
            unsafe { file.write(pair[part], lanes) };
        }
    }
}

/// Reads c in f16, whose adjacent elements are in one register.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn read_halves(Operands { file, matrix, product }: Operands<'_>) -> [Tile<f64>; MAX_TILES] {
    let mut tiles = [[[0.0; TILE]; TILE]; MAX_TILES];
    for (tile, &register) in tiles.iter_mut().zip(product.registers(matrix, 3)) {
        // SAFETY: by the contract.
        let lanes = unsafe { file.read::<u32>(register) };
        for lane in 0..LANES {
            for part in 0..2 {
                let value = of_half(lanes[lane] >> (16 * part) & 0xffff);
                tile[lane / GROUP][lane % GROUP * 2 + part] = f64::from(value);
            }
        }
    }
    tiles
}

/// Writes d in f16, whose adjacent elements are in one register.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn write_halves(
    Operands { file, matrix, product }: Operands<'_>,
    tiles: &[Tile<f64>; MAX_TILES],
) {
    for (tile, &register) in tiles.iter().zip(product.registers(matrix, 0)) {
        let mut lanes = [0; LANES];
        for lane in 0..LANES {
            for part in 0..2 {
                let sum = tile[lane / GROUP][lane % GROUP * 2 + part];
                lanes[lane] |= Format::F16.narrow(sum, Rounding::Nearest) << (16 * part);
            }
        }
        // SAFETY: by the contract.
        unsafe { file.write(register, lanes) };
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn floats<const PARTS: usize>(operands: Operands<'_>, value: impl Fn(u32, usize) -> f64) {
    let [_, _, c, d] = operands.product.elements;
    // SAFETY: by the contract.
    unsafe {
        let mut sums = match c {
            Element::F16 => read_halves(operands),
            _ => read_pairs(operands, |word: u32| f64::from(f32::from_bits(word))),
        };
        // The product is exact, so this equals a fused multiply-add on every host.
        let step = |x, y, sum| x * y + sum;
        accumulate::<u32, f64, PARTS>(operands, |_, word, part| value(word, part), step, &mut sums);
        match d {
            Element::F16 => write_halves(operands, &sums),
            _ => write_pairs(operands, &sums, |sum| canonical(sum as f32)),
        }
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn doubles(operands: Operands<'_>) {
    let value = |_, bits, _| f64::from_bits(bits);
    // SAFETY: by the contract.
    unsafe {
        let mut sums = read_pairs(operands, f64::from_bits);
        match operands.product.rounding {
            Rounding::Nearest => {
                accumulate::<u64, f64, 1>(operands, value, f64::mul_add, &mut sums);
            }
            mode => {
                let step = |x, y, sum| f64::from_bits(fma_in(x, y, sum, mode));
                accumulate::<u64, f64, 1>(operands, value, step, &mut sums);
            }
        }
        write_pairs(operands, &sums, canonical64);
    }
}

/// # Safety
///
/// As for [`multiply`].
#[inline(never)]
unsafe fn integers(operands: Operands<'_>) {
    let product = operands.product;
    let is_signed = [false, product.elements[0] == Element::S8, product.elements[1] == Element::S8];
    let value = |operand: usize, word: u32, part: usize| {
        let byte = (word >> (8 * part)) as u8;
        if is_signed[operand] { i64::from(byte as i8) } else { i64::from(byte) }
    };
    // SAFETY: by the contract.
    unsafe {
        let mut sums = read_pairs(operands, |word: u32| i64::from(word as i32));
        accumulate::<u32, i64, 4>(operands, value, |x, y, sum| x * y + sum, &mut sums);
        write_pairs(operands, &sums, |sum| {
            let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
            (if product.saturates { sum.clamp(low, high) } else { sum }) as u32
        });
    }
}
