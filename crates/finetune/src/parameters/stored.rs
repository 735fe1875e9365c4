//! The tensor in files that contains a parameter, and the positions of its elements.

use std::ops::Range;

use super::Parameter;

impl Parameter {
    /// Returns the name of the tensor in files.
    pub fn stored_name(&self) -> String {
        let fused = self.layout.fused.and_then(|fused| Some((fused, fused.projection.fused()?)));
        match fused {
            Some((part, (module, _))) => self.name.replace(part.projection.module(), module),
            None => self.name.clone(),
        }
    }

    /// Returns the shape of the tensor in files.
    pub fn stored_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let (Some(fused), Some(rows)) = (self.layout.fused, shape.first_mut()) {
            *rows = fused.rows;
        }
        shape
    }

    /// Returns the row of the tensor in files that has row `row`.
    pub fn stored_row(&self, row: usize) -> usize {
        let first = self.layout.fused.map_or(0, |fused| fused.first_row);
        first + self.layout.heads.map_or(row, |heads| heads.stored(row))
    }

    /// Returns the row of this parameter that is row `row` of its part of the tensor in files.
    pub(crate) fn loaded_row(&self, row: usize) -> usize {
        self.layout.heads.map_or(row, |heads| heads.loaded(row))
    }

    /// Divides the range `elements` into pieces that are consecutive in files. Returns each piece,
    /// relative to the start of the range, with its first element in the tensor of the file.
    pub(crate) fn stored_pieces(&self, elements: Range<usize>) -> Vec<(Range<usize>, usize)> {
        let width = self.shape.iter().skip(1).product::<usize>().max(1);
        let (mut pieces, mut at) = (Vec::new(), elements.start);
        while at < elements.end {
            let (row, column) = (at / width, at % width);
            let end = match self.layout.heads {
                Some(heads) => elements.end.min((row + heads.consecutive(row)) * width),
                None => elements.end,
            };
            let piece = at - elements.start..end - elements.start;
            pieces.push((piece, self.stored_row(row) * width + column));
            at = end;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, ModelConfig, Preset};
    use crate::parameters::inventory;

    fn parameter(name: &str) -> Parameter {
        let model = ModelConfig {
            head_dim: Some(8),
            heads: 4,
            kv_heads: 2,
            rotary_dim: Some(4),
            fused: true,
            ..Preset::Tiny.model()
        };
        let all = inventory(&model, Mode::Full);
        all.into_iter().find(|one| one.name.contains(name)).unwrap()
    }

    #[test]
    fn pairs_of_a_partly_rotated_head_are_half_a_head_apart() {
        let q = parameter("0.self_attn.q_proj.weight");
        let rows: Vec<usize> = (0..16).map(|row| q.stored_row(row)).collect();
        assert_eq!(rows, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
        assert!((0..32).all(|row| q.loaded_row(q.stored_row(row)) == row));
        let v = parameter("0.self_attn.v_proj.weight");
        assert_eq!((v.stored_row(0), v.stored_row(15)), (32 + 16, 32 + 16 + 15));
        let up = parameter("1.mlp.up_proj.weight");
        assert_eq!(up.stored_name(), "model.layers.1.mlp.gate_up_proj.weight");
        assert_eq!((up.stored_shape(), up.stored_row(3)), (vec![352, 64], 176 + 3));
    }

    #[test]
    fn pieces_of_any_range_have_every_element_once() {
        let k = parameter("0.self_attn.k_proj.weight");
        let width = 64;
        for (first, end) in [(0, k.len()), (5, 5), (70, 71), (100, 900), (k.len() - 3, k.len())] {
            let pieces = k.stored_pieces(first..end);
            let found: Vec<usize> =
                pieces.iter().flat_map(|(piece, stored)| *stored..stored + piece.len()).collect();
            let expected: Vec<usize> = (first..end)
                .map(|element| k.stored_row(element / width) * width + element % width)
                .collect();
            assert_eq!(found, expected);
            assert!(pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>() == end - first);
        }
    }
}
