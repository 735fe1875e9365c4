//! The bytes of a box of a tensor, in global and in shared memory.

use crate::tensor_map::{MAX_DIMENSIONS, TensorMap};

/// Bytes that a swizzle moves as a unit.
pub(super) const PIECE: u64 = 16;

/// A piece of a row of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its address in shared memory.
    pub(super) shared: u64,
    /// Leading bytes of the piece that are outside the tensor.
    pub(super) before: u64,
    /// Bytes of the piece that are in the tensor.
    pub(super) bytes: u64,
    /// The address of these bytes in global memory.
    pub(super) global: u64,
}

/// The pieces of the box whose first element is at `first` and which starts at `shared` in shared
/// memory. With a swizzle, each row takes its span there, also if it is shorter: seen on an H200
/// with rows of 32 bytes and a span of 64. Whether a load keeps the bytes between rows is not
/// known; here it poisons them.
pub(super) fn pieces(map: &TensorMap, first: [i32; MAX_DIMENSIONS], shared: u64) -> Vec<Piece> {
    let size = u64::from(map.element.size());
    let row_pieces = u64::from(map.extent[0]) * size / PIECE;
    let pitch = map.swizzle.span().map_or(row_pieces, |span| span / PIECE);
    let in_piece = (PIECE / size) as i64;
    let rows: u64 = map.extent[1..].iter().map(|&extent| u64::from(extent)).product();
    let mut out = Vec::with_capacity((rows * row_pieces) as usize);
    for row in 0..rows {
        let (mut rest, mut inside, mut start) = (row, true, map.address);
        for (dimension, &extent) in map.extent.iter().enumerate().skip(1) {
            let at = i64::from(first[dimension]) + (rest % u64::from(extent)) as i64;
            rest /= u64::from(extent);
            inside &= (0..map.dimensions[dimension] as i64).contains(&at);
            let stride = map.strides[dimension - 1];
            start = start.wrapping_add((at as u64).wrapping_mul(stride));
        }
        for piece in 0..row_pieces {
            let left = i64::from(first[0]) + piece as i64 * in_piece;
            let skipped = (-left).clamp(0, in_piece);
            let end = (map.dimensions[0] as i64 - left).clamp(0, in_piece);
            let count = if inside { (end - skipped).max(0) } else { 0 };
            let global = start.wrapping_add(((left + skipped) as u64).wrapping_mul(size));
            out.push(Piece {
                shared: map.swizzle.apply(shared + (row * pitch + piece) * PIECE),
                before: skipped as u64 * size,
                bytes: count as u64 * size,
                global,
            });
        }
    }
    out
}
