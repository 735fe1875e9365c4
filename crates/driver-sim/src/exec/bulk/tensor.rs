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
/// memory.
pub(super) fn pieces(map: &TensorMap, first: [i32; MAX_DIMENSIONS], shared: u64) -> Vec<Piece> {
    let size = u64::from(map.element.size());
    let row_pieces = u64::from(map.extent[0]) * size / PIECE;
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
                shared: map.swizzle.apply(shared + (row * row_pieces + piece) * PIECE),
                before: skipped as u64 * size,
                bytes: count as u64 * size,
                global,
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrograph_ptx::ast::Type;

    use crate::tensor_map::Swizzle;

    fn map() -> TensorMap {
        TensorMap {
            element: Type::F32,
            address: 0x1000,
            dimensions: vec![10, 3],
            strides: vec![48],
            extent: vec![8, 2],
            swizzle: Swizzle::None,
        }
    }

    fn spans(first: [i32; 5]) -> Vec<(u64, u64, u64)> {
        let all = pieces(&map(), first, 0);
        all.iter().map(|piece| (piece.before, piece.bytes, piece.global)).collect()
    }

    #[test]
    fn a_box_inside_the_tensor_is_complete() {
        let all = pieces(&map(), [0, 1, 0, 0, 0], 256);
        assert_eq!(all.iter().map(|piece| piece.shared).collect::<Vec<_>>(), [256, 272, 288, 304]);
        let global: Vec<u64> = all.iter().map(|piece| piece.global).collect();
        assert_eq!(global, [0x1030, 0x1040, 0x1060, 0x1070]);
        assert!(all.iter().all(|piece| (piece.before, piece.bytes) == (0, 16)));
    }

    #[test]
    fn elements_outside_the_tensor_are_omitted() {
        let none = |(_, bytes, _): &(u64, u64, u64)| *bytes == 0;
        let before = spans([-2, 0, 0, 0, 0]);
        assert_eq!((before[0], before[1]), ((8, 8, 0x1000), (0, 16, 0x1008)));
        let after = spans([6, 2, 0, 0, 0]);
        assert_eq!((after[0].1, after[1].1), (16, 0));
        assert!(none(&after[2]) && none(&after[3]));
        assert!(spans([0, -2, 0, 0, 0]).iter().all(none));
        assert!(spans([10, 0, 0, 0, 0]).iter().all(none));
    }
}
